from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from backendops.api import shapes
from backendops.models import PendingBackendOp
from backendops.presenting import lines, shares
from backendops.states import OpState
from tests.factories import NOW, make_node, make_op, make_operation

pytestmark = pytest.mark.django_db

MIB = 2**20


def halfway(name: str = "a", *, heard_at: datetime = NOW, **more: Any) -> PendingBackendOp:
    told: dict[str, Any] = {
        "state": OpState.RUNNING,
        "phase": "downloading",
        "percentage": 50.0,
        "current_bytes": 20 * MIB,
        "total_bytes": 40 * MIB,
        "rate": 4.0 * MIB,
        "progress_at": heard_at,
    }
    return make_op(make_node(name), **{**told, **more})


def shown(op: PendingBackendOp, *, after: int) -> shares.Share:
    return shares.share(op, may=lambda verb: True, now=NOW + timedelta(seconds=after))


def amounts(*ops: PendingBackendOp, after: int) -> str:
    [line] = lines.lines([make_operation(*ops)], now=NOW + timedelta(seconds=after))
    return line.amounts


def test_a_hung_worker_has_no_rate_and_no_time_left_but_says_how_long_it_is_silent() -> None:
    op = halfway()
    assert shown(op, after=9).amounts == "20 MB of 40 MB · 4 MB/s · 5 s left"
    assert shown(op, after=9).notes == []
    assert shown(op, after=12).amounts == "20 MB of 40 MB"
    assert shown(op, after=12).notes == ["Nothing heard for 12 s."]


def test_an_operation_says_so_when_all_its_nodes_at_work_are_silent() -> None:
    done = make_op(make_node("b"), state=OpState.SUCCEEDED, total_bytes=40 * MIB, finished_at=NOW)
    silent = halfway()
    assert amounts(silent, done, after=5).endswith("4 MB/s · 5 s left")
    assert amounts(silent, done, after=70).endswith("of 80 MB · nothing heard for 1 min")


def test_an_operation_counts_the_silent_while_others_go_on_and_guesses_no_end() -> None:
    later = NOW + timedelta(seconds=12)
    told = amounts(halfway("a"), halfway("b", heard_at=later), after=12)
    assert told == "40 MB of 80 MB · 4 MB/s · nothing heard from 1 node"


def test_who_never_told_anything_is_not_said_to_have_fallen_silent() -> None:
    mute = make_op(make_node("a"), state=OpState.RUNNING)
    assert shown(mute, after=60).notes == []
    assert amounts(mute, after=60) == ""


@pytest.mark.parametrize("state", [state for state in OpState if state != OpState.RUNNING])
def test_only_what_is_at_work_can_be_silent(state: OpState) -> None:
    notes = " ".join(shown(halfway(state=state, due_at=NOW), after=60).notes)
    assert "heard" not in notes


def test_the_api_tells_no_rate_and_no_end_of_what_is_silent() -> None:
    op = halfway()
    heard = shapes.op_json(op, now=NOW)
    assert (heard["rate"], heard["etaSeconds"], heard["silentSeconds"]) == (4.0 * MIB, 5.0, None)
    silent = shapes.op_json(op, now=NOW + timedelta(seconds=12))
    assert (silent["rate"], silent["etaSeconds"], silent["silentSeconds"]) == (None, None, 12.0)


def test_an_open_page_hears_of_the_silence_though_nothing_was_written(root: Client) -> None:
    now = datetime.now(UTC)
    op = halfway(heard_at=now - timedelta(minutes=3), changed_at=now - timedelta(minutes=3))
    asked = {"ops": str(op.pk), "seen": now.isoformat()}
    text = root.get(reverse("admin:operations_live"), asked).content.decode()
    assert "Nothing heard for 3 min." in text
