from datetime import timedelta

import pytest

from nodes.services import beating, registration
from nodes.states import LabelSource
from nodes.wire import HeartbeatReport
from tests.factories import GIB, NOW, make_node, make_request, make_token

pytestmark = pytest.mark.django_db

LATER = NOW + timedelta(hours=1)


def test_an_operators_slot_count_is_not_reset_by_a_worker_restart() -> None:
    token = make_token()
    node = make_node(
        join_token=token, max_replicas_per_model=4, max_replicas_per_model_manually_set=True
    )
    node = registration.register(make_request(max_replicas_per_model=1), token=token, now=LATER)
    assert (node.max_replicas_per_model, node.worker_max_replicas_per_model) == (4, 1)


def test_without_an_override_the_worker_says_how_many_slots_it_has() -> None:
    token = make_token()
    make_node(join_token=token, max_replicas_per_model=4)
    node = registration.register(make_request(max_replicas_per_model=2), token=token, now=LATER)
    assert (node.max_replicas_per_model, node.worker_max_replicas_per_model) == (2, 2)


def test_an_operators_labels_are_not_wiped_by_a_worker_restart() -> None:
    token = make_token()
    node = make_node(join_token=token, boot_id="a")
    node.label_rows.create(key="owner", value="ada", source=LabelSource.ADMIN)
    registration.register(make_request(boot_id="b"), token=token, now=LATER)
    assert node.label_rows.get(key="owner").value == "ada"


def test_a_budget_removed_at_the_worker_is_gone() -> None:
    token = make_token()
    request = make_request(total_vram=16 * GIB, available_vram=16 * GIB, vram_budget="50%")
    node = registration.register(request, token=token, now=NOW)
    assert (node.vram_budget, node.available_vram) == ("50%", 8 * GIB)
    request = make_request(total_vram=16 * GIB, available_vram=16 * GIB)
    node = registration.register(request, token=token, now=LATER)
    assert (node.vram_budget, node.vram_budget_bytes) == ("", 0)
    assert node.available_vram == 16 * GIB


def test_an_operators_budget_stays_and_follows_the_new_total() -> None:
    token = make_token()
    make_node(join_token=token, vram_budget="50%", vram_budget_manually_set=True)
    request = make_request(total_vram=16 * GIB, available_vram=16 * GIB, vram_budget="90%")
    node = registration.register(request, token=token, now=LATER)
    assert (node.vram_budget, node.worker_vram_budget) == ("50%", "90%")
    assert (node.vram_budget_bytes, node.available_vram) == (8 * GIB, 8 * GIB)


def test_a_percentage_is_applied_once_however_often_the_node_beats() -> None:
    token = make_token(auto_approve=True)
    request = make_request(total_vram=16 * GIB, available_vram=16 * GIB, vram_budget="50%")
    node = registration.register(request, token=token, now=NOW)
    for second in (10, 20):
        beat = beating.Beat(
            node_id=node.pk,
            received_at=NOW + timedelta(seconds=second),
            report=HeartbeatReport(available_vram=16 * GIB),
        )
        beating.record([beat])
    node = registration.register(request, token=token, now=LATER)
    assert (node.vram_budget_bytes, node.available_vram) == (8 * GIB, 8 * GIB)


def test_a_full_disk_is_not_mistaken_for_no_news() -> None:
    token = make_token()
    make_node(join_token=token, total_disk=200, available_disk=100)
    node = registration.register(
        make_request(total_disk=200, available_disk=0), token=token, now=LATER
    )
    assert (node.total_disk, node.available_disk) == (200, 0)


def test_a_machine_that_lost_its_card_is_not_shown_with_it() -> None:
    token = make_token()
    make_node(
        join_token=token,
        gpu_vendor="nvidia",
        capability="nvidia-cuda-13",
        total_vram=16 * GIB,
        available_vram=16 * GIB,
    )
    node = registration.register(make_request(), token=token, now=LATER)
    assert (node.gpu_vendor, node.capability) == ("", "")
    assert (node.total_vram, node.available_vram) == (0, 0)


@pytest.mark.parametrize("boot_id", ["a", "b", ""])
def test_a_registration_leaves_reservations_to_the_jobs_that_own_them(boot_id: str) -> None:
    token = make_token()
    make_node(join_token=token, boot_id="a", reserved_vram=GIB)
    node = registration.register(make_request(boot_id=boot_id), token=token, now=LATER)
    assert node.reserved_vram == GIB
