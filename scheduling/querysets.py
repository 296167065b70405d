"""Sets of rows worth a name. They never write and never read a clock."""

from datetime import datetime
from typing import TYPE_CHECKING, Self

from django.db import models

from scheduling.states import ACTIVE, HELD, JobState

if TYPE_CHECKING:
    from scheduling.models import LoadJob


class LoadJobQuerySet(models.QuerySet["LoadJob"]):
    def active(self) -> Self:
        return self.filter(state__in=ACTIVE)

    def due(self, now: datetime) -> Self:
        return self.filter(state=JobState.PENDING, due_at__lte=now)

    def abandoned(self, now: datetime) -> Self:
        """Whose process has not renewed its lease."""
        return self.filter(state__in=HELD, lease_until__lt=now)

    def reserving(self) -> Self:
        """Whose memory the node does not report yet."""
        return self.filter(reservation_ended_at=None, reserved_vram__gt=0)
