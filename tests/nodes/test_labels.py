from typing import Any

import pytest
from hypothesis import given, settings
from pytest_django import DjangoAssertNumQueries, DjangoCaptureOnCommitCallbacks

from clustermgr.lib.errors import Conflict, InvalidInput, PreconditionFailed
from nodes.labelling import MAX_LABELS
from nodes.models import BackendNode, ClusterEvent, NodeLabel
from nodes.services import labels
from nodes.states import LabelSource
from tests.factories import GIB, NOW, make_node
from tests.nodes.facts import listening
from tests.nodes.strategies import LABELS

pytestmark = pytest.mark.django_db


def effective(node: BackendNode) -> dict[str, str]:
    return labels.effective([node.pk])[node.pk]


def owned(node: BackendNode, source: LabelSource) -> dict[str, str]:
    return {row.key: row.value for row in NodeLabel.objects.filter(node=node, source=source)}


def register(node: BackendNode, reported: dict[str, Any], **token: str) -> None:
    labels.apply_registration(node, reported=reported, token_labels=token, now=NOW)


def test_a_worker_that_drops_a_label_takes_it_with_it_and_leaves_the_operators_alone() -> None:
    node = make_node()
    register(node, {"zone": "a", "tier": "fast"})
    labels.merge_admin(node, {"rack": "7"}, by="eve", now=NOW)

    register(node, {"zone": "a"})

    assert effective(node).items() >= {"zone": "a", "rack": "7"}.items()
    assert "tier" not in effective(node)


def test_a_registration_brings_the_labels_of_hardware_and_token() -> None:
    node = make_node(gpu_vendor="nvidia", total_vram=24 * GIB, max_replicas_per_model=2)
    register(node, {"node.arch": "arm64"}, team="vision")

    assert effective(node) == {
        "gpu.vendor": "nvidia",
        "gpu.vram": "24GB",
        "node.name": "gpu-1",
        "node.replica-slots": "2",
        "node.arch": "arm64",
        "team": "vision",
    }


def test_a_worker_cannot_claim_what_we_compute() -> None:
    node = make_node(max_replicas_per_model=4)
    register(node, {"node.replica-slots": "1", "node.name": "somebody-else"})

    assert effective(node)["node.replica-slots"] == "4"
    assert effective(node)["node.name"] == "gpu-1"


def test_operator_beats_token_beats_worker_beats_computed() -> None:
    node = make_node(gpu_vendor="amd")
    register(node, {"tier": "worker", "zone": "worker"}, tier="token", rack="token")
    labels.merge_admin(node, {"tier": "admin", "gpu.vendor": "intel"}, by="eve", now=NOW)

    found = effective(node)

    assert (found["tier"], found["rack"], found["zone"]) == ("admin", "token", "worker")
    assert found["gpu.vendor"] == "intel"


def test_removing_an_override_shows_the_next_owners_value_again() -> None:
    node = make_node()
    register(node, {"tier": "fast"})
    labels.merge_admin(node, {"tier": "slow"}, by="eve", now=NOW)

    labels.remove_admin(node, "tier", by="eve", now=NOW)

    assert effective(node)["tier"] == "fast"


@pytest.mark.parametrize(
    ("key", "owner"),
    [("tier", "the worker"), ("team", "the join token"), ("node.name", "the node's own facts")],
)
def test_a_label_of_another_owner_is_not_removed_and_the_owner_is_named(
    key: str, owner: str
) -> None:
    node = make_node()
    register(node, {"tier": "fast"}, team="vision")

    with pytest.raises(Conflict, match=owner):
        labels.remove_admin(node, key, by="eve", now=NOW)
    assert key in effective(node)


def test_removing_an_absent_label_is_nothing() -> None:
    node = make_node()
    labels.remove_admin(node, "nobody-set-this", by="eve", now=NOW)
    assert not ClusterEvent.objects.exists()


def test_sending_back_what_was_read_copies_nothing() -> None:
    node = make_node(gpu_vendor="nvidia")
    register(node, {"tier": "fast"}, team="vision")

    labels.replace_admin(node, {**effective(node), "rack": "7"}, by="eve", now=NOW)

    assert owned(node, LabelSource.ADMIN) == {"rack": "7"}


def test_replacing_keeps_a_pin_that_happens_to_agree_with_the_worker() -> None:
    node = make_node()
    labels.merge_admin(node, {"tier": "fast"}, by="eve", now=NOW)
    register(node, {"tier": "fast"})

    labels.replace_admin(node, {"tier": "fast"}, by="eve", now=NOW)

    assert owned(node, LabelSource.ADMIN) == {"tier": "fast"}


def test_after_a_replacement_everything_asked_for_is_in_effect_and_nothing_else_is_ours() -> None:
    node = make_node()

    @settings(max_examples=60, deadline=None)
    @given(LABELS, LABELS, LABELS)
    def holds(worker: dict[str, str], before: dict[str, str], asked: dict[str, str]) -> None:
        register(node, worker)
        labels.merge_admin(node, before, by="eve", now=NOW)
        labels.replace_admin(node, asked, by="eve", now=NOW)
        assert effective(node).items() >= asked.items()
        assert owned(node, LabelSource.ADMIN).items() <= asked.items()

    holds()


def test_a_change_is_an_event_a_new_version_and_an_announcement_after_commit(
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
) -> None:
    node = make_node()
    with listening() as heard:
        with django_capture_on_commit_callbacks(execute=True):
            changed = labels.merge_admin(node, {"tier": "fast"}, by="eve", now=NOW)
            assert heard.capacity == []
        assert heard.capacity == [node.pk]

    event = ClusterEvent.objects.get()
    assert (event.kind, event.actor, event.node) == ("node.labels_changed", "eve", node)
    assert (event.before, event.after) == ({"admin": {}}, {"admin": {"tier": "fast"}})
    assert changed.version == node.version + 1


def test_what_changes_nothing_writes_nothing(
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
) -> None:
    node = make_node()
    register(node, {"tier": "fast"})
    labels.merge_admin(node, {"rack": "7"}, by="eve", now=NOW)
    ClusterEvent.objects.all().delete()
    version = BackendNode.objects.get().version

    with django_capture_on_commit_callbacks() as told:
        register(node, {"tier": "fast"})
        labels.merge_admin(node, {"rack": "7"}, by="eve", now=NOW)
        labels.replace_admin(node, {"rack": "7"}, by="eve", now=NOW)

    assert told == []
    assert not ClusterEvent.objects.exists()
    assert BackendNode.objects.get().version == version


def test_an_edit_of_an_old_version_is_refused_even_if_it_would_change_nothing() -> None:
    node = make_node()
    labels.merge_admin(node, {"tier": "fast"}, by="eve", now=NOW, expected_version=1)

    with pytest.raises(PreconditionFailed):
        labels.merge_admin(node, {"tier": "slow"}, by="bob", now=NOW, expected_version=1)
    with pytest.raises(PreconditionFailed):
        labels.merge_admin(node, {"tier": "fast"}, by="bob", now=NOW, expected_version=1)

    assert effective(node)["tier"] == "fast"


@pytest.mark.parametrize(
    "bad",
    [
        {"": "x"},
        {"k" * 129: "x"},
        {"two words": "x"},
        {"k": "x" * 256},
        {"k": "nul\0"},
        {"k": 3},
        {"k": None},
        {f"k{number}": "" for number in range(MAX_LABELS + 1)},
    ],
)
def test_labels_out_of_bounds_are_refused_and_nothing_is_written(bad: dict[str, Any]) -> None:
    node = make_node()
    with pytest.raises(InvalidInput):
        register(node, bad)
    with pytest.raises(InvalidInput):
        labels.merge_admin(node, bad, by="eve", now=NOW)
    with pytest.raises(InvalidInput):
        labels.replace_admin(node, bad, by="eve", now=NOW)
    assert not NodeLabel.objects.exists()


def test_merging_cannot_creep_over_the_limit() -> None:
    node = make_node()
    many = {f"k{number}": "" for number in range(MAX_LABELS)}
    labels.merge_admin(node, many, by="eve", now=NOW)
    with pytest.raises(InvalidInput, match=str(MAX_LABELS)):
        labels.merge_admin(node, {"one-more": ""}, by="eve", now=NOW)


def test_effective_labels_of_many_nodes_cost_one_query(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    nodes = [make_node(f"gpu-{number}") for number in range(5)]
    for node in nodes[1:]:
        register(node, {"zone": "a"})
    with django_assert_num_queries(1):
        found = labels.effective([node.pk for node in nodes])
    assert found[nodes[0].pk] == {}
    assert [found[node.pk]["node.name"] for node in nodes[1:]] == [n.name for n in nodes[1:]]
