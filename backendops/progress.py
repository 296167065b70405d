"""How far an operation is: many nodes' readings as one bar. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from backendops.states import OpState

DONE = 100.0
LONGEST_ETA = timedelta(days=2)  # beyond it, a rate says nothing
SILENT_AFTER = timedelta(seconds=10)  # workers tell several times a second while they fetch


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One op's place."""

    state: OpState
    percentage: float = 0.0
    current_bytes: int = 0
    total_bytes: int = 0
    rate: float = 0.0  # as of now: 0 when nothing was heard for long


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    percentage: float
    current_bytes: int
    total_bytes: int  # 0: not known for all of them
    rate: float
    eta: timedelta | None  # None rather than a guess


def silence(heard_at: datetime | None, *, now: datetime) -> timedelta | None:
    """How long a worker that told something has told nothing; None while it is no news."""
    if heard_at is None or now - heard_at < SILENT_AFTER:
        return None
    return now - heard_at


def percentage_of(reading: Reading) -> float:
    return DONE if reading.state == OpState.SUCCEEDED else min(max(reading.percentage, 0.0), DONE)


def aggregate(readings: Sequence[Reading], *, floor: float = 0.0) -> Aggregate:
    """The byte-weighted mean; a node whose size is unknown weighs as much as the others do.

    Cancelled and superseded shares are left out: what will never happen is not missing.
    """
    counted = [r for r in readings if r.state not in (OpState.CANCELLED, OpState.SUPERSEDED)]
    if not counted:
        return Aggregate(percentage=floor, current_bytes=0, total_bytes=0, rate=0.0, eta=None)
    sizes = [r.total_bytes for r in counted if r.total_bytes > 0]
    usual = sum(sizes) / len(sizes) if sizes else 1.0
    weights = [r.total_bytes or usual for r in counted]
    mean = sum(w * percentage_of(r) for w, r in zip(weights, counted, strict=True)) / sum(weights)
    known = len(sizes) == len(counted)
    moving = [r for r in counted if r.state == OpState.RUNNING]
    rate = sum(r.rate for r in moving)
    return Aggregate(
        percentage=max(mean, floor),
        current_bytes=sum(r.current_bytes for r in counted),
        total_bytes=sum(sizes) if known else 0,
        rate=rate,
        eta=None if _some_wait(counted) else _longest(moving),
    )


def eta(reading: Reading) -> timedelta | None:
    """How long this one still takes at its rate; None rather than a guess."""
    if reading.state != OpState.RUNNING or reading.rate <= 0 or not reading.total_bytes:
        return None
    left = max(reading.total_bytes - reading.current_bytes, 0) / reading.rate
    return timedelta(seconds=left) if left <= LONGEST_ETA.total_seconds() else None


def _some_wait(counted: Sequence[Reading]) -> bool:
    """Nobody knows when their turn comes: the running ones' time is not the operation's."""
    return any(reading.state == OpState.QUEUED for reading in counted)


def _longest(moving: Sequence[Reading]) -> timedelta | None:
    """They run side by side: the slowest decides, and one unknown makes all unknown."""
    times = [eta(reading) for reading in moving]
    known = [time for time in times if time is not None]
    return max(known) if known and len(known) == len(times) else None
