from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from pytest_django import DjangoCaptureOnCommitCallbacks

from clustermgr.lib.errors import DomainError, NodeRefused, NodeSilent, NodeUnreachable
from nodes.models import NodeModel
from nodes.services import confirming
from nodes.states import Liveness, ReplicaState
from nodes.wire import RunningModel, decode_running
from tests.factories import NOW, make_node, make_replica

pytestmark = pytest.mark.django_db

ASKED = NOW + timedelta(seconds=5)


def running(*processes: tuple[str, int]) -> confirming.Ask:
    def answer(_: UUID) -> Sequence[RunningModel]:
        return [RunningModel(model_id=model, replica_index=index) for model, index in processes]

    return answer


def test_what_runs_is_believed_and_what_does_not_is_forgotten(
    removals: list[Any], django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    node = make_node()
    for index in range(2):
        make_replica(node, index=index, suspect_since=NOW, last_confirmed_at=None)
    with django_capture_on_commit_callbacks(execute=True):
        assert confirming.confirm(node.pk, ask=running(("llama", 1), ("qwen", 0)), now=ASKED)
    replica = NodeModel.objects.serving().get()
    assert (replica.replica_index, replica.last_confirmed_at) == (1, ASKED)
    assert removals == [("llama", 0, "It did not run any more when its worker registered again.")]


def test_a_worker_that_names_its_loopback_address_is_not_disbelieved() -> None:
    node = make_node()
    make_replica(node, address="10.0.0.7:50052", suspect_since=NOW)
    reply = b'{"models":[{"model_id":"llama","replica_index":0,"address":"127.0.0.1:50052"}]}'
    confirming.confirm(node.pk, ask=lambda _: decode_running(reply), now=ASKED)
    assert NodeModel.objects.serving().exists()


@pytest.mark.parametrize("refusal", [NodeUnreachable, NodeSilent, NodeRefused])
def test_silence_is_not_taken_for_an_empty_machine(refusal: type[DomainError]) -> None:
    node = make_node()
    make_replica(node, suspect_since=NOW)

    def ask(_: UUID) -> Sequence[RunningModel]:
        raise refusal("no answer")

    assert not confirming.confirm(node.pk, ask=ask, now=ASKED)
    assert NodeModel.objects.get().suspect_since == NOW


def test_an_answer_to_an_earlier_question_settles_nothing() -> None:
    node = make_node()
    make_replica(node, suspect_since=NOW)

    def registers_again_meanwhile(_: UUID) -> Sequence[RunningModel]:
        confirming.suspect(node, now=ASKED + timedelta(seconds=1))
        return []

    confirming.confirm(node.pk, ask=registers_again_meanwhile, now=ASKED)
    assert NodeModel.objects.get().suspect_since == ASKED + timedelta(seconds=1)


def test_rows_that_are_not_in_doubt_are_not_touched() -> None:
    node = make_node()
    make_replica(node, "known")
    make_replica(node, "stopping", state=ReplicaState.UNLOADING, suspect_since=NOW)
    make_replica(node, "doubted", suspect_since=NOW)
    make_replica(make_node("gpu-2"), "doubted", suspect_since=NOW)
    confirming.confirm(node.pk, ask=running(), now=ASKED)
    assert sorted(NodeModel.objects.values_list("node__name", "model_name")) == [
        ("gpu-1", "known"),
        ("gpu-1", "stopping"),
        ("gpu-2", "doubted"),
    ]


def test_nobody_is_asked_when_nothing_is_in_doubt() -> None:
    def ask(_: UUID) -> Sequence[RunningModel]:
        raise AssertionError("asked")

    node = make_node()
    make_replica(node)
    assert confirming.confirm(node.pk, ask=ask, now=ASKED)


@pytest.mark.django_db(transaction=True)
def test_no_transaction_is_open_while_the_worker_is_asked() -> None:
    node = make_node()
    make_replica(node, suspect_since=NOW)
    seen: list[bool] = []

    def ask(_: UUID) -> Sequence[RunningModel]:
        seen.append(connection.in_atomic_block)
        return []

    confirming.confirm(node.pk, ask=ask, now=ASKED)
    assert seen == [False]


def test_nodes_in_doubt_are_asked_again_after_a_while() -> None:
    waiting, fresh = make_node("gpu-1"), make_node("gpu-2")
    gone = make_node("gpu-3", liveness=Liveness.OFFLINE)
    for index in range(2):
        make_replica(waiting, index=index, suspect_since=NOW)
    make_replica(fresh, suspect_since=NOW + timedelta(seconds=20))
    make_replica(gone, suspect_since=NOW)
    assert confirming.suspects_due(now=NOW + timedelta(seconds=29)) == []
    assert confirming.suspects_due(now=NOW + timedelta(seconds=30)) == [waiting.pk]
