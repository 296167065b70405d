"""How well remembered prompts serve: counted in memory, written together, read by everybody."""

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connection
from django.db.models import Sum

from clustermgr.lib.rounds import Rounds
from scheduling import statements
from scheduling.models import RouteTally
from scheduling.prefixes.selecting import Load, Wish

EVERY = timedelta(seconds=5)
KEPT = timedelta(hours=24)
COUNTS = ("picks", "hits", "misses", "pressure", "lucky", "regret")

Key = tuple[str, datetime, bool]


@dataclass(slots=True, kw_only=True)
class Counts:
    """Of one model, one minute and one mode; or the sum of several."""

    picks: int = 0
    hits: int = 0
    misses: int = 0
    pressure: int = 0
    lucky: int = 0
    regret: int = 0
    pressed_at: datetime | None = None

    @property
    def hit_rate(self) -> float | None:
        return self.hits / self.picks if self.picks else None

    @property
    def mean_regret(self) -> float | None:
        """How many requests more than the idlest the chosen one had, on average."""
        return self.regret / self.picks if self.picks else None

    def add(self, other: "Counts") -> None:
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        times = [one for one in (self.pressed_at, other.pressed_at) if one is not None]
        self.pressed_at = max(times, default=None)


def counted(wish: Wish | None, load: Load, *, to_hot: bool, now: datetime) -> Counts:
    """One pick that preferred."""
    regret = max(load.chosen - load.least, 0)
    if to_hot:
        return Counts(picks=1, hits=1, regret=regret)
    if wish is None or wish.hot is None or load.hot is None:
        return Counts(picks=1, misses=1, regret=regret)
    return Counts(picks=1, pressure=1, regret=regret, pressed_at=now)


def foreseen(wish: Wish | None, load: Load, *, to_hot: bool) -> Counts:
    """One pick in turn: what preferring would have done."""
    if wish is None or wish.hot is None or load.hot is None:
        return Counts(picks=1, misses=1)
    if wish.allows(load.hot, least=load.least):
        return Counts(picks=1, hits=1, lucky=int(to_hot), regret=load.hot - load.least)
    return Counts(picks=1, pressure=1, lucky=int(to_hot))


class Tallies:
    """What this process counted and has not written yet; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[Key, Counts] = {}
        self._rounds = Rounds(name="tallies", every=EVERY, needed=self._any, do=self.flush)

    def add(self, model: str, counts: Counts, *, shadow: bool, now: datetime) -> None:
        """Count; it is written within seconds."""
        self._merge([((model, now.replace(second=0, microsecond=0), shadow), counts)])
        self._rounds.start()

    def flush(self) -> None:
        """Write everything in one statement; what cannot be written waits."""
        with self._lock:
            taken, self._waiting = self._waiting, {}
        try:
            _write(taken)
        except Exception:  # edge: whatever it is, what was counted is kept; the round logs it
            self._merge(taken.items())
            raise

    def _merge(self, counted: Iterable[tuple[Key, Counts]]) -> None:
        with self._lock:
            for key, counts in counted:
                self._waiting.setdefault(key, Counts()).add(counts)

    def _any(self) -> bool:
        return bool(self._waiting)


def _write(taken: dict[Key, Counts]) -> None:
    if not taken:
        return
    keys = sorted(taken)  # in one order: two processes that write the same minute do not deadlock
    rows = [taken[key] for key in keys]
    values: dict[str, Any] = {  # lists, of which the stubs know nothing
        name: [getattr(row, name) for row in rows] for name in (*COUNTS, "pressed_at")
    }
    names, minutes, shadows = zip(*keys, strict=True)
    values |= {"names": list(names), "minutes": list(minutes), "shadows": list(shadows)}
    with connection.cursor() as cursor:
        cursor.execute(statements.TALLY, values)


def totals(
    *, since: datetime, models: Iterable[str] | None = None
) -> dict[tuple[str, bool], Counts]:
    """By model and whether it was only foreseen; one statement."""
    rows = RouteTally.objects.filter(minute__gte=since).order_by()
    if models is not None:
        rows = rows.filter(model_name__in=models)
    sums = rows.values_list("model_name", "shadow").annotate(*(Sum(name) for name in COUNTS))
    return {
        (model, shadow): Counts(**dict[str, Any](zip(COUNTS, map(int, numbers), strict=True)))
        for model, shadow, *numbers in sums
    }


def forget_old(*, now: datetime) -> int:
    """Drop what nobody looks at any more; the tidy tick calls it."""
    rows, _ = RouteTally.objects.filter(minute__lt=now - KEPT).delete()
    return rows
