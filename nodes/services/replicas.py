"""Replica rows: the only door out."""

from django.db import transaction

from nodes.models import NodeModel
from nodes.querysets import NodeModelQuerySet
from nodes.services import announce


@transaction.atomic
def remove(rows: NodeModelQuerySet, *, reason: str) -> list[NodeModel]:
    """Forget replicas. The only way a replica row dies, so nobody misses the announcement.

    Rows are locked in id order: two removals that overlap wait instead of deadlocking.
    """
    doomed = list(rows.order_by("id").select_for_update(of=("self",)))
    NodeModel.objects.filter(pk__in=[replica.pk for replica in doomed]).delete()
    for replica in doomed:
        announce.replica_removed(replica, reason=reason)
    return doomed
