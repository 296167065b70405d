"""The line on every page: the first failure, else what is least advanced, and how many more."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.http import HttpRequest

from backendops.presenting import lines, words
from backendops.services import rollups
from backendops.services.rollups import Rollup
from backendops.states import OperationState
from nodes.presenting.displays import Bar

VIEW = "backendops.view_operation"
# How soon a page asks again, in milliseconds; 0: it stops
BUSY, IDLE, NEVER = 1500, 10_000, 0
ICONS = {
    OperationState.QUEUED: "schedule",
    OperationState.RUNNING: "progress_activity",
    OperationState.CANCELLING: "cancel",
    OperationState.UNCONFIRMED: "help",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """What to say; without an operation, nothing."""

    failures: int = 0
    more: int = 0
    operation: UUID | None = None
    tone: str = ""
    icon: str = ""
    headline: str = ""
    detail: str = ""
    bar: Bar | None = None
    amounts: str = ""
    spins: bool = False
    every: int = NEVER


def of(request: HttpRequest, *, now: datetime) -> Strip:
    """What this page says; see `live` for what it costs."""
    return strip(live(request, now=now))


def live(request: HttpRequest, *, now: datetime) -> list[Rollup]:
    """One query for each page, shared by all its parts; none for who may not see operations."""
    known: list[Rollup] | None = getattr(request, "live_operations", None)
    if known is None:
        known = rollups.live(now=now) if request.user.has_perm(VIEW) else []
        request.live_operations = known  # type: ignore[attr-defined]
    return known


def strip(live: list[Rollup]) -> Strip:
    if not live:
        return Strip()
    bad = [roll for roll in live if roll.needs_attention and not roll.active]
    shown = bad[0] if bad else min(live, key=_advancement)
    return Strip(
        failures=sum(roll.needs_attention for roll in live),
        more=len(live) - 1,
        operation=shown.operation,
        every=pace(live),
        headline=words.headline(shown),
        amounts=lines.amounts(shown),
        **_failure(shown) if shown in bad else _progress(shown),
    )


def _advancement(roll: Rollup) -> tuple[bool, bool, float]:
    """What runs before what waits, and of those the least advanced."""
    return roll.state != OperationState.RUNNING, not roll.active, roll.percentage


def pace(live: list[Rollup]) -> int:
    """Quickly while something moves, slowly while something only waits, else not at all."""
    if any(roll.moving for roll in live):
        return BUSY
    return IDLE if live else NEVER


def _failure(roll: Rollup) -> dict[str, Any]:
    return {"tone": "bad", "icon": "error", "detail": roll.first_error}


def _progress(roll: Rollup) -> dict[str, Any]:
    state = roll.state
    return {
        "tone": "warn" if state == OperationState.UNCONFIRMED or roll.failed else "plain",
        "icon": ICONS.get(state, "schedule"),
        "detail": words.nodes(roll),
        "bar": lines.bar(roll),
        "spins": state == OperationState.RUNNING,
    }
