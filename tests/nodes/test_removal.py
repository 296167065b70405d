from typing import Any
from uuid import UUID

import pytest
from django.db import transaction

from nodes import signals
from nodes.models import NodeModel
from nodes.services import lifecycle, replicas
from tests.factories import NOW, make_node, make_replica

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_removal_is_told_once_per_row_after_commit(removals: list[Any]) -> None:
    node = make_node()
    for index in range(3):
        make_replica(node, index=index)
    with transaction.atomic():
        replicas.remove(NodeModel.objects.filter(replica_index__gte=1), reason="test")
        assert removals == []
    assert sorted(removals) == [("llama", 1, "test"), ("llama", 2, "test")]
    assert NodeModel.objects.get().replica_index == 0


def test_a_removal_that_is_rolled_back_is_not_told(removals: list[Any]) -> None:
    make_replica(make_node())
    with transaction.atomic():
        replicas.remove(NodeModel.objects.all(), reason="test")
        transaction.set_rollback(True)
    assert removals == []
    assert NodeModel.objects.exists()


def test_a_second_listener_does_not_displace_the_first(removals: list[Any]) -> None:
    heard: list[UUID] = []

    def listen(*, node_id: UUID, **_: Any) -> None:
        heard.append(node_id)

    node = make_node()
    make_replica(node)
    signals.replica_removed.connect(listen)
    replicas.remove(NodeModel.objects.all(), reason="test")
    signals.replica_removed.disconnect(listen)
    assert (heard, len(removals)) == ([node.pk], 1)


def test_a_listener_that_fails_does_not_silence_the_others(
    removals: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    def fail(**_: Any) -> None:
        raise RuntimeError("broken receiver")

    make_replica(make_node())
    signals.replica_removed.connect(fail)
    replicas.remove(NodeModel.objects.all(), reason="test")
    signals.replica_removed.disconnect(fail)
    assert len(removals) == 1


def test_a_whole_nodes_removal_names_every_replica_of_every_model(removals: list[Any]) -> None:
    node = make_node()
    make_replica(node, "llama", 0)
    make_replica(node, "llama", 1)
    make_replica(node, "qwen", 0)
    lifecycle.leave(node, now=NOW)
    assert sorted(removals) == [
        ("llama", 0, "Its worker left."),
        ("llama", 1, "Its worker left."),
        ("qwen", 0, "Its worker left."),
    ]
