"""Who is declared gone, who is back, and when nobody is judged at all; pure.

When most nodes fall silent in the same minute, the likelier culprit is us: the web server, the
database, a switch. Declaring them offline would throw away every replica in the cluster, so
the sweep *holds* instead, and does the same after an absence of its own.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Self
from uuid import UUID

from nodes.states import Liveness

# Three ticks may get lost in a deploy before we suspect that we were away.
LOST_TICKS = 3
SHORTEST_ABSENCE = timedelta(seconds=45)
ROUNDING = 1e-9  # ten times 0.1 falls short of one


@dataclass(frozen=True, slots=True, kw_only=True)
class Knobs:
    """What an operator may turn, see ClusterSettings."""

    stale_after: timedelta
    every: timedelta
    hold_fraction: float
    hold_minimum: int
    offline_per_second: float
    offline_burst: int
    flap_limit: int
    flap_window: timedelta
    quarantine_for: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What the sweep knows of one node."""

    id: UUID
    name: str
    liveness: Liveness
    approved: bool
    left: bool  # stopped gracefully: only a registration brings it back
    last_heartbeat: datetime
    liveness_changed_at: datetime
    recoveries: tuple[datetime, ...] = ()  # newest first
    quarantined_until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Nobody is declared offline: because of an absence of ours until then, or of a silence."""

    since: datetime
    until: datetime | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What one sweep leaves for the next."""

    last_sweep_at: datetime | None
    hold: Hold | None
    allowance: float  # how many nodes may still be declared offline
    fence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Everything a sweep decides from. `nodes` may leave out those that are plainly well."""

    nodes: tuple[Watched, ...]
    online: int  # let in and not offline, including those left out
    memory: Memory


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPlan:
    """What one sweep does."""

    before: Memory
    memory: Memory
    offline: tuple[Watched, ...] = ()
    recovered: tuple[Watched, ...] = ()
    quarantined: tuple[Watched, ...] = ()  # recovered once too often
    released: tuple[Watched, ...] = ()
    waiting: int = 0  # silent nodes that nobody declared offline this time

    @property
    def touched(self) -> frozenset[Watched]:
        return frozenset((*self.offline, *self.recovered, *self.released))

    @property
    def hold_began(self) -> bool:
        """Also when an absence turns into a mass silence: that is a new reason, and news."""
        old, new = self.before.hold, self.memory.hold
        return new is not None and (old is None or old.until != new.until)

    @property
    def hold_ended(self) -> bool:
        return self.before.hold is not None and self.memory.hold is None

    def among(self, still: Collection[Watched]) -> Self:
        """The same plan for those that nobody else has changed meanwhile."""
        return replace(
            self,
            offline=tuple(node for node in self.offline if node in still),
            recovered=tuple(node for node in self.recovered if node in still),
            quarantined=tuple(node for node in self.quarantined if node in still),
            released=tuple(node for node in self.released if node in still),
        )


def decide(view: View, *, now: datetime, knobs: Knobs) -> SweepPlan:
    """Judge every node once."""
    silent = [node for node in view.nodes if _is_silent(node, now, knobs)]
    back = [node for node in view.nodes if _is_back(node, now, knobs)]
    flapping = [node for node in back if _flaps(node, now, knobs)]
    hold = _hold(view, silent, back, now, knobs)
    allowance = _refilled(view.memory, now, knobs)
    offline = [] if hold else _declared(silent, allowance)
    return SweepPlan(
        before=view.memory,
        memory=Memory(
            last_sweep_at=now,
            hold=hold,
            allowance=allowance - sum(node.approved for node in offline),
            fence=view.memory.fence + 1,
        ),
        offline=tuple(offline),
        recovered=tuple(back),
        quarantined=tuple(flapping),
        released=tuple(n for n in view.nodes if n not in flapping and _has_served(n, now)),
        waiting=len(silent) - len(offline),
    )


def _is_silent(node: Watched, now: datetime, knobs: Knobs) -> bool:
    return node.liveness != Liveness.OFFLINE and now - node.last_heartbeat > knobs.stale_after


def _is_back(node: Watched, now: datetime, knobs: Knobs) -> bool:
    """Heard *after* it was written off: the heartbeat before a graceful stop is fresh, too."""
    return (
        node.liveness != Liveness.HEALTHY
        and not node.left
        and node.last_heartbeat > node.liveness_changed_at
        and now - node.last_heartbeat <= knobs.stale_after
    )


def _flaps(node: Watched, now: datetime, knobs: Knobs) -> bool:
    if node.liveness != Liveness.OFFLINE:
        return False
    recent = [moment for moment in node.recoveries if now - moment < knobs.flap_window]
    return node.quarantined_until is not None or len(recent) + 1 >= knobs.flap_limit


def _has_served(node: Watched, now: datetime) -> bool:
    return node.quarantined_until is not None and node.quarantined_until <= now


def _declared(silent: list[Watched], allowance: float) -> list[Watched]:
    """Those whose silence counts now, longest silence first.

    Nodes that were never let in cost no allowance: they carry nothing that could be lost, and
    a stranger who registers a thousand of them must not keep us from noticing a real loss.
    """
    strangers = [node for node in silent if not node.approved]
    members = sorted(
        (node for node in silent if node.approved), key=lambda node: (node.last_heartbeat, node.id)
    )
    return [*strangers, *members[: int(allowance + ROUNDING)]]


def _refilled(memory: Memory, now: datetime, knobs: Knobs) -> float:
    passed = now - (memory.last_sweep_at or now)
    gained = max(passed.total_seconds(), 0) * knobs.offline_per_second
    return min(memory.allowance + gained, float(knobs.offline_burst))


def _hold(
    view: View, silent: list[Watched], back: list[Watched], now: datetime, knobs: Knobs
) -> Hold | None:
    # Only those let in are counted, for the reason given in `_declared`. Who comes back in
    # this very sweep counts as online already.
    online = view.online + sum(n.approved and n.liveness == Liveness.OFFLINE for n in back)
    before = view.memory.hold
    since = before.since if before else now
    absence = _absence(view.memory, now, knobs)
    if absence and online:
        until = now + knobs.stale_after
        return Hold(since=since, until=until, reason=f"{absence}: {_nobody_before(until)}")
    if before and before.until and now < before.until:
        return before
    quiet = sum(node.approved for node in silent)
    if quiet >= knobs.hold_minimum and quiet / online >= knobs.hold_fraction:
        return Hold(since=since, until=None, reason=_too_many(quiet, online))
    return None


def _absence(memory: Memory, now: datetime, knobs: Knobs) -> str:
    """Why heartbeats may have gone unheard, or nothing."""
    if memory.last_sweep_at is None:
        return "This is the first sweep"
    gap = now - memory.last_sweep_at
    if gap <= max(LOST_TICKS * knobs.every, SHORTEST_ABSENCE):
        return ""
    return f"No sweep ran for {round(gap.total_seconds())} s; we were down, asleep or cut off"


def _nobody_before(until: datetime) -> str:
    return f"nobody is declared offline before {until:%H:%M:%S} UTC, so that workers can beat."


def _too_many(quiet: int, online: int) -> str:
    return (
        f"{quiet} of {online} nodes ({quiet / online:.0%}) are silent together, which is more "
        "likely our fault than theirs: nobody is declared offline."
    )
