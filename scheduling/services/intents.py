"""Writes a plan down: one statement for what comes, one for what goes, one doorbell after commit.

The caller holds the lock and the transaction, and says what comes before what goes: nodes are
locked before replicas. Nothing here asks a node.
"""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from django.db import connection

from clustermgr.lib.context import request_id
from clustermgr.lib.queue import after_commit
from scheduling import statements
from scheduling.planning.plans import Place, Rolled, Unload

SUBJECT = 255


def load(places: Sequence[Place], *, by: str, now: datetime) -> list[int]:
    """Take each slot and open its job; the jobs' ids.

    A slot that somebody has meanwhile is passed over, and so is a model that was edited, or a node
    that was closed, between look and write: the decision is void, and the next tick has it.
    """
    if not places:
        return []
    values: dict[str, Any] = {
        "ids": [uuid4() for _ in places],
        "models": [place.model for place in places],
        "revisions": [place.revision for place in places],
        "nodes": [place.node for place in places],
        "slots": [place.index for place in places],
        "causes": [place.cause.value for place in places],
        "vram": [place.vram for place in places],
        "replaced": [place.replaces for place in places],
        "summaries": [place.summary for place in places],
        "verdicts": [json.dumps([one.as_json() for one in place.verdicts]) for place in places],
        "subjects": [_subject(place) for place in places],
    }
    jobs: list[int] = _written(statements.OPEN_JOBS, values, by=by, now=now)
    if jobs:
        _send_out()
    return jobs


def let_go(
    stop: Sequence[Unload],
    *,
    retire: Sequence[Unload] = (),
    rolled: Sequence[Rolled] = (),
    by: str,
    now: datetime,
) -> list[UUID]:
    """Begin to stop those that still serve nobody; their ids.

    `retire`: send nothing new to these; the next ticks stop them once they are idle. `rolled`: the
    new revision stands in for the old one, of which nothing serves any more.
    """
    leavers = [*stop, *retire]
    if not leavers and not rolled:
        return []
    values: dict[str, Any] = {
        "ids": [one.replica for one in leavers],
        "stops": [True] * len(stop) + [False] * len(retire),
        # Whoever goes before its replacement has come is worth a decision, though it is busy yet
        "decided": [True] * len(stop) + [one.gap for one in retire],
        "models": [one.model for one in leavers],
        "nodes": [one.node for one in leavers],
        "slots": [one.index for one in leavers],
        "subjects": [_subject(one) for one in leavers],
        "causes": [one.cause.value for one in leavers],
        "reasons": [one.reason for one in leavers],
        "summaries": [f"{_subject(one)} leaves. {one.reason}" for one in leavers],
        "rolled": [one.model for one in rolled],
        "revisions": [one.revision for one in rolled],
    }
    gone: list[UUID] = _written(statements.LET_GO, values, by=by, now=now)
    if gone:
        _send_out()
    return gone


def _written(statement: str, values: dict[str, Any], *, by: str, now: datetime) -> list[Any]:
    common: dict[str, Any] = {"by": by[:150], "now": now, "request": request_id.get()}
    with connection.cursor() as cursor:
        cursor.execute(statement, {**values, **common})
        return [found for (found,) in cursor.fetchall()]


def _send_out() -> None:
    """One doorbell however much there is to do: ringing for each took longer than deciding."""
    after_commit("scheduling.send_out")


def _subject(one: Place | Unload) -> str:
    return f"{one.model}#{one.index} on {one.node_name}"[:SUBJECT]
