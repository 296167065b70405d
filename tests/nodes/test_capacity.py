from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest
from django.db import connection
from pytest_django import DjangoCaptureOnCommitCallbacks

from clustermgr.lib.errors import InvalidInput, NotFound, PreconditionFailed
from nodes.models import BackendNode, ClusterEvent, NodeModel
from nodes.services import capacity, labels
from nodes.states import ReplicaState
from tests.factories import GIB, NOW, make_node, make_replica
from tests.nodes.facts import listening


@pytest.mark.django_db
def test_an_operators_slot_count_sticks_until_it_is_reset() -> None:
    node = make_node(worker_max_replicas_per_model=2, max_replicas_per_model=2)

    fixed = capacity.set_max_replicas(node, 4, by="eve", now=NOW)
    assert (fixed.max_replicas_per_model, fixed.max_replicas_per_model_manually_set) == (4, True)
    assert labels.effective([node.pk])[node.pk]["node.replica-slots"] == "4"

    free = capacity.reset_max_replicas(node, by="eve", now=NOW)
    assert (free.max_replicas_per_model, free.max_replicas_per_model_manually_set) == (2, False)
    assert labels.effective([node.pk])[node.pk]["node.replica-slots"] == "2"


@pytest.mark.django_db
def test_row_68_fewer_slots_than_are_taken_stop_nothing_that_runs() -> None:
    node = make_node(max_replicas_per_model=3)
    for index in range(3):
        make_replica(node, index=index, in_flight=1)
    assert capacity.set_max_replicas(node, 1, by="eve", now=NOW).max_replicas_per_model == 1
    assert NodeModel.objects.filter(node=node, state=ReplicaState.LOADED).count() == 3


@pytest.mark.django_db
def test_fixing_the_number_the_worker_already_has_is_still_an_override() -> None:
    node = capacity.set_max_replicas(make_node(), 1, by="eve", now=NOW)
    assert node.max_replicas_per_model_manually_set
    assert node.version == 3  # the override, then the computed labels


@pytest.mark.django_db
@pytest.mark.parametrize("value", [0, -1, 10_001, 10**12])
def test_an_absurd_slot_count_is_refused(value: int) -> None:
    node = make_node()
    with pytest.raises(InvalidInput, match=str(value)):
        capacity.set_max_replicas(node, value, by="eve", now=NOW)
    assert not ClusterEvent.objects.exists()


@pytest.mark.django_db
def test_a_budget_caps_what_is_available_at_once() -> None:
    node = make_node(total_vram=16 * GIB, available_vram=14 * GIB)

    capped = capacity.set_vram_budget(node, " 50% ", by="eve", now=NOW)

    assert (capped.vram_budget, capped.vram_budget_bytes) == ("50%", 8 * GIB)
    assert capped.available_vram == 8 * GIB
    assert capped.total_vram == 16 * GIB
    assert capped.vram_budget_manually_set


@pytest.mark.django_db
def test_a_budget_never_adds_memory_that_is_in_use() -> None:
    node = make_node(total_vram=16 * GIB, available_vram=2 * GIB)
    assert capacity.set_vram_budget(node, "50%", by="eve", now=NOW).available_vram == 2 * GIB


@pytest.mark.django_db
def test_an_empty_budget_is_an_override_that_means_no_cap() -> None:
    node = make_node(
        total_vram=16 * GIB,
        available_vram=4 * GIB,
        worker_vram_budget="25%",
        vram_budget="25%",
        vram_budget_bytes=4 * GIB,
    )

    free = capacity.set_vram_budget(node, "", by="eve", now=NOW)
    assert (free.vram_budget_bytes, free.vram_budget_manually_set) == (0, True)

    back = capacity.reset_vram_budget(node, by="eve", now=NOW)
    assert (back.vram_budget, back.vram_budget_bytes) == ("25%", 4 * GIB)
    assert not back.vram_budget_manually_set


@pytest.mark.django_db
def test_a_stored_worker_budget_that_cannot_be_read_is_no_cap() -> None:
    node = make_node(total_vram=GIB, worker_vram_budget="plenty", vram_budget_manually_set=True)
    assert capacity.reset_vram_budget(node, by="eve", now=NOW).vram_budget_bytes == 0


@pytest.mark.django_db
def test_a_budget_that_means_nothing_changes_nothing() -> None:
    node = make_node(total_vram=GIB)
    with pytest.raises(InvalidInput):
        capacity.set_vram_budget(node, "120%", by="eve", now=NOW)
    assert BackendNode.objects.get().version == 1


@pytest.mark.django_db
def test_every_override_is_an_event_and_an_announcement(
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
) -> None:
    node = make_node(total_vram=10 * GIB)
    with listening() as heard, django_capture_on_commit_callbacks(execute=True):
        capacity.set_vram_budget(node, "50%", by="eve", now=NOW)
    assert heard.capacity == [node.pk]

    event = ClusterEvent.objects.get()
    assert (event.kind, event.actor) == ("node.capacity_changed", "eve")
    assert event.before["vram_budget"] == ""
    assert event.after["vram_budget_bytes"] == 5 * GIB


@pytest.mark.django_db
def test_the_same_override_again_writes_nothing() -> None:
    node = make_node(total_vram=10 * GIB)
    capacity.set_vram_budget(node, "50%", by="eve", now=NOW)
    again = capacity.set_vram_budget(node, "50%", by="eve", now=NOW)
    assert again.version == 2
    assert ClusterEvent.objects.count() == 1


@pytest.mark.django_db
def test_an_override_of_an_old_version_is_refused() -> None:
    node = make_node(total_vram=GIB)
    capacity.set_vram_budget(node, "50%", by="eve", now=NOW, expected_version=1)
    with pytest.raises(PreconditionFailed, match="gpu-1"):
        capacity.set_vram_budget(node, "60%", by="bob", now=NOW, expected_version=1)
    with pytest.raises(PreconditionFailed):
        capacity.reset_max_replicas(node, by="bob", now=NOW, expected_version=1)
    assert BackendNode.objects.get().vram_budget == "50%"


@pytest.mark.django_db
def test_a_node_that_is_not_there_is_not_found() -> None:
    ghost = BackendNode(pk=uuid4(), name="ghost")
    with pytest.raises(NotFound, match="ghost"):
        capacity.set_max_replicas(ghost, 2, by="eve", now=NOW)


@pytest.mark.django_db(transaction=True)
def test_of_two_edits_of_one_version_only_one_is_made() -> None:
    node = make_node()

    def edit(value: int) -> bool:
        try:
            capacity.set_max_replicas(node, value, by="eve", now=NOW, expected_version=1)
        except PreconditionFailed:
            return False
        finally:
            connection.close()
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(edit, range(2, 10))) == 1
