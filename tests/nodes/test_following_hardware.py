from typing import Any

import pytest

from nodes.models import BackendNode
from nodes.services import beating, labels
from nodes.wire import HeartbeatReport
from tests.factories import GIB, NOW, make_node

pytestmark = pytest.mark.django_db


def beat(node: BackendNode, **told: Any) -> BackendNode:
    report = HeartbeatReport(**told)
    beating.record([beating.Beat(node_id=node.pk, received_at=NOW, report=report)])
    node.refresh_from_db()
    return node


def test_a_share_of_the_memory_follows_the_memory_down_and_up() -> None:
    node = make_node(
        total_vram=24 * GIB,
        vram_budget="50%",
        vram_budget_bytes=12 * GIB,
        vram_budget_manually_set=True,
    )
    assert beat(node, total_vram=8 * GIB).vram_budget_bytes == 4 * GIB
    assert beat(node, total_vram=24 * GIB).vram_budget_bytes == 12 * GIB


def test_an_absolute_budget_comes_back_with_the_memory() -> None:
    node = make_node(total_vram=24 * GIB, vram_budget="16GiB", vram_budget_bytes=16 * GIB)
    assert beat(node, total_vram=12 * GIB).vram_budget_bytes == 12 * GIB
    assert beat(node, total_vram=24 * GIB).vram_budget_bytes == 16 * GIB


def test_a_share_of_an_unknown_total_counts_as_soon_as_the_total_is_known() -> None:
    node = make_node(vram_budget="50%")
    beat(node, total_vram=24 * GIB, available_vram=24 * GIB)
    assert node.vram_budget_bytes == 12 * GIB
    assert beat(node, available_vram=24 * GIB).available_vram == 12 * GIB


def test_the_labels_follow_the_card() -> None:
    node = beat(make_node(), total_vram=24 * GIB, gpu_vendor="nvidia")
    assert labels.effective([node.pk])[node.pk].items() >= {
        ("gpu.vram", "24GB"),
        ("gpu.vendor", "nvidia"),
    }
    beat(node, total_vram=8 * GIB)
    assert labels.effective([node.pk])[node.pk]["gpu.vram"] == "8GB"


def test_a_beat_that_changes_no_hardware_leaves_no_event() -> None:
    node = beat(make_node(), total_vram=24 * GIB)
    before = node.events.count()
    beat(node, total_vram=24 * GIB, available_vram=GIB)
    assert node.events.count() == before
