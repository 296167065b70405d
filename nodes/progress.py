"""A progress bar that only moves forward, and not too often."""

from nodes.wire import PHASES, InstallProgress

RANKS = {phase: rank for rank, phase in enumerate(PHASES)}


class Forward:
    """Of the ticks of one operation, those worth showing.

    NATS keeps the order of one connection, not that of a worker which reconnects and sends
    again. Time is whatever clock the caller passes, in seconds.
    """

    def __init__(self, *, per_second: float) -> None:
        self._pause = 1 / per_second
        self._shown_at = float("-inf")
        self._newest: InstallProgress | None = None
        self._held: InstallProgress | None = None
        self._completed = False

    def offer(self, tick: InstallProgress, *, at: float) -> InstallProgress | None:
        """Return the tick if it is to be shown now; a newer one replaces what is held back."""
        if self._newest and not _follows(self._newest, tick):
            return None
        self._newest = self._held = tick
        # The first to be complete does not wait: what follows it may take minutes and say nothing
        completes = tick.percentage >= 100 and not self._completed
        if not completes and at - self._shown_at < self._pause:
            return None
        self._completed = self._completed or completes
        self._shown_at = at
        return self.rest()

    def rest(self) -> InstallProgress | None:
        """The last tick if it was held back, once the operation is over."""
        held, self._held = self._held, None
        return held


def _follows(last: InstallProgress, tick: InstallProgress) -> bool:
    if last.seq and tick.seq:
        return tick.seq > last.seq
    # Equal counts: with an unknown total only the amount moves, and the percentage stays at 0
    return _position(tick, last) >= _position(last, last)


def _position(tick: InstallProgress, last: InstallProgress) -> tuple[int, float]:
    """Where a tick stands; a phase we do not know is the one we are in."""
    return RANKS.get(tick.phase, RANKS.get(last.phase, 0)), tick.percentage
