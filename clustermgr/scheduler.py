"""Beat's clock: in memory, and everything is due at once when it starts."""

from datetime import UTC, datetime

from celery.beat import ScheduleEntry, Scheduler

LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


class StaticScheduler(Scheduler):
    """No schedule file to corrupt, and repairs begin with the process, not an interval later.

    Two of these side by side are harmless: ticks are idempotent, lock what they change, expire.
    """

    def setup_schedule(self) -> None:
        super().setup_schedule()
        for name, entry in self.schedule.items():
            self.schedule[name] = self._overdue(entry)

    def _overdue(self, entry: ScheduleEntry) -> ScheduleEntry:
        entry.last_run_at = LONG_AGO
        return entry
