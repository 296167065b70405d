import pytest

from nodes.labelling import auto_labels, vram_bucket
from tests.factories import GIB


@pytest.mark.parametrize(
    ("total", "bucket"),
    [
        (1, "0GB"),
        (6 * GIB, "6GB"),
        (8 * GIB - 1, "7GB"),
        (8 * GIB, "8GB"),
        (12 * GIB, "8GB"),
        (16 * GIB, "16GB"),
        (24 * GIB, "24GB"),
        (48 * GIB, "48GB"),
        (79 * GIB, "48GB"),
        (80 * GIB, "80GB+"),
        (640 * GIB, "80GB+"),
    ],
)
def test_vram_falls_into_the_sizes_cards_are_sold_in(total: int, bucket: str) -> None:
    assert vram_bucket(total) == bucket


def test_a_machine_without_a_gpu_says_nothing_about_one() -> None:
    labels = auto_labels(name="cpu-1", gpu_vendor="", total_vram=0, slots=0)
    assert labels == {"node.name": "cpu-1", "node.replica-slots": "1"}
