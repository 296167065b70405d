"""Memory that is spoken for: a job's from its creation until the node's own report includes it.

`BackendNode.reserved_vram` is the sum of what jobs hold there. It only changes together with a
job, under the node's lock (statements.OPEN_JOBS takes it), so it cannot leak; and whoever decides
holds the one lock of all plans and looks at what jobs hold, so nothing is promised twice.
"""

import logging
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from django.db import connection, transaction
from django.db.models import F, Q

from nodes.models import BackendNode
from nodes.services import announce, facts
from scheduling import statements
from scheduling.models import LoadJob
from scheduling.states import ACTIVE

log = logging.getLogger(__name__)


def hold(node_ids: set[UUID]) -> None:
    """Lock nodes, in the order everybody does, before what jobs hold there changes."""
    if node_ids:
        list(facts.lockable().filter(pk__in=node_ids).order_by("pk").values_list("pk"))


@transaction.atomic
def end(job_ids: Sequence[int], *, now: datetime) -> None:
    """Give back what these jobs hold; twice is once."""
    open_ = LoadJob.objects.filter(pk__in=job_ids, reservation_ended_at=None)
    nodes = set(open_.values_list("node_id", flat=True))
    if not nodes:
        return
    hold(nodes)
    with connection.cursor() as cursor:
        cursor.execute(statements.END_RESERVATIONS, {"ids": list(job_ids), "now": now})
    for node_id in nodes:
        announce.capacity_changed(node_id)


def end_reported(*, now: datetime) -> int:
    """End those of loaded jobs whose node has beaten since, or whose replica is gone again."""
    reported = Q(node__last_heartbeat__gt=F("finished_at")) | Q(replica=None)
    open_ = LoadJob.objects.filter(reported, reservation_ended_at=None)
    ids = list(open_.exclude(state__in=ACTIVE).values_list("pk", flat=True))
    end(ids, now=now)
    return len(ids)


@transaction.atomic
def mend() -> int:
    """Set right what is not the sum of its jobs: left behind by an older version, or a fault."""
    hold({node_id for node_id, _ in _wrong()})
    wrong = _wrong()  # again, now that nobody can change it
    for node_id, amount in wrong:
        BackendNode.objects.filter(pk=node_id).update(reserved_vram=amount)
        log.warning("reserved memory was not what jobs hold", extra={"node": str(node_id)})
    return len(wrong)


def _wrong() -> list[tuple[UUID, int]]:
    with connection.cursor() as cursor:
        cursor.execute(statements.RESERVED)
        return [(node_id, int(amount)) for node_id, amount in cursor.fetchall()]
