from collections.abc import Callable

import pytest

from backendops.services import cancelling
from backendops.states import OpState, Verb
from clustermgr.lib.errors import InvalidMove
from tests.backendops.played import PlayedNode
from tests.backendops.test_executing import only, order
from tests.factories import NOW

pytestmark = pytest.mark.django_db(transaction=True)

Work = Callable[[], list[int]]


def test_row_47_a_cancelled_op_that_waits_never_reaches_its_node(work: Work) -> None:
    with PlayedNode.called("gpu-1") as played:
        operation = order(Verb.INSTALL, "llama-cpp", played)
        cancelling.cancel(operation, by="bob", now=NOW)
        assert work() == []
    assert played.did == []
    assert only(operation).state == OpState.CANCELLED


def test_row_49_what_a_cancelled_op_ends_in_is_recorded_and_stays_cancelled(work: Work) -> None:
    with PlayedNode.called("gpu-1") as played:
        operation = order(Verb.INSTALL, "llama-cpp", played)

        def cancel() -> None:
            cancelling.cancel(operation, by="bob", now=NOW)

        played.before = cancel
        work()
    op = only(operation)
    assert op.state == OpState.CANCELLED
    assert op.note == "Cancelled by bob. The node had finished it."
    assert op.finished_at is not None


def test_row_52_a_delete_that_the_node_has_begun_is_not_stopped_halfway(work: Work) -> None:
    with PlayedNode.called("gpu-1") as played:
        played.has("llama-cpp")
        operation = order(Verb.DELETE, "llama-cpp", played)
        refused: list[str] = []

        def cancel() -> None:
            try:
                cancelling.cancel(operation, by="bob", now=NOW)
            except InvalidMove as refusal:
                refused.append(str(refusal))

        played.before = cancel
        work()
    assert refused == ["gpu-1 is deleting llama-cpp; that is not stopped halfway."]
    assert only(operation).state == OpState.SUCCEEDED
