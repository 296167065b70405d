from typing import Any

import pytest

from backendops.models import PendingBackendOp
from backendops.states import OpState
from nodes.models import ClusterEvent
from tests.api.clients import Caller, read
from tests.factories import NOW, make_node, make_op

pytestmark = pytest.mark.django_db
LETTERS = "/api/operations/dead-letters"


@pytest.fixture
def dead(db: None) -> list[PendingBackendOp]:
    causes = {"one": "disk full", "two": "disk full", "three": "no such build"}
    return [
        make_op(make_node(name), state=OpState.DEAD, last_error=why, finished_at=NOW)
        for name, why in causes.items()
    ]


def states() -> list[str]:
    return list(PendingBackendOp.objects.order_by("id").values_list("state", flat=True))


def test_row_43_dead_letters_are_grouped_by_cause(
    root: Caller, dead: list[PendingBackendOp]
) -> None:
    make_op(make_node("alive"))
    told = read(root.get(LETTERS))
    assert told["total"] == 3
    assert [(cause["cause"], cause["count"]) for cause in told["causes"]] == [
        ("disk full", 2),
        ("no such build", 1),
    ]
    assert told["causes"][0]["ops"] == [dead[0].pk, dead[1].pk]
    assert told["causes"][0]["backends"] == ["llama-cpp"]


@pytest.mark.parametrize(
    ("chosen", "hit"),
    [
        (lambda dead: {"ops": [dead[2].pk]}, [2]),
        (lambda dead: {"cause": "disk full"}, [0, 1]),
        (lambda dead: {"all": True}, [0, 1, 2]),
    ],
)
def test_they_are_put_back_singly_by_cause_or_all(
    root: Caller, dead: list[PendingBackendOp], chosen: Any, hit: list[int]
) -> None:
    reply = root.post(f"{LETTERS}/redrive", chosen(dead))
    assert (reply.status_code, read(reply)["count"]) == (200, len(hit))
    expected = [OpState.QUEUED if place in hit else OpState.DEAD for place in range(3)]
    assert states() == expected
    assert ClusterEvent.objects.filter(kind="op.redriven", actor="root").count() == len(hit)


def test_they_are_let_go_with_a_reason_and_stay_in_the_record(
    root: Caller, dead: list[PendingBackendOp]
) -> None:
    assert root.post(f"{LETTERS}/discard", {"all": True}).status_code == 400
    reply = root.post(f"{LETTERS}/discard", {"cause": "disk full", "reason": "machines sold"})
    assert read(reply)["count"] == 2
    assert states() == [OpState.CANCELLED, OpState.CANCELLED, OpState.DEAD]
    assert "machines sold" in PendingBackendOp.objects.order_by("id")[0].note


@pytest.mark.parametrize("chosen", [{}, {"all": True, "cause": "x"}, {"ops": [1], "all": True}])
def test_which_ones_is_said_in_exactly_one_way(root: Caller, chosen: object) -> None:
    assert root.post(f"{LETTERS}/redrive", chosen).status_code == 400


@pytest.mark.parametrize("chosen", [{"ops": [999_999]}, {"cause": "unheard of"}, {"all": True}])
def test_none_left_is_a_refusal(root: Caller, chosen: object) -> None:
    make_op(make_node("alive"))
    reply = root.post(f"{LETTERS}/redrive", chosen)
    assert (reply.status_code, states()) == (409, [OpState.QUEUED])


def test_one_whose_place_was_taken_is_refused_in_words(
    root: Caller, dead: list[PendingBackendOp]
) -> None:
    make_op(dead[0].node)
    reply = root.post(f"{LETTERS}/redrive", {"ops": [dead[0].pk]})
    assert (reply.status_code, read(reply)["code"]) == (409, "conflict")
