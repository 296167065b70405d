"""Tells the facts of signals.py once they are committed."""

import logging
from collections.abc import Sequence
from functools import partial
from uuid import UUID

from django.db import transaction

from nodes.models import NodeModel
from nodes.signals import capacity_changed as capacity_changed_signal
from nodes.signals import replica_removed as replica_removed_signal
from nodes.signals import replica_unloading as replica_unloading_signal
from nodes.signals import room_came as room_came_signal
from nodes.signals import service_lost as service_lost_signal

log = logging.getLogger(__name__)


def capacity_changed(node_id: UUID) -> None:
    """Something that did not fit may fit now."""
    transaction.on_commit(partial(_send_capacity_changed, node_id))


def room_came() -> None:
    """Workers report more free memory or disk than before; once for all of a batch."""
    transaction.on_commit(_send_room_came)


def service_lost() -> None:
    """Fewer serve than did, or soon will: others may have to stand in for them."""
    transaction.on_commit(_send_service_lost)


def replica_removed(replica: NodeModel, *, reason: str) -> None:
    """One replica row is gone; one announcement for each real row."""
    transaction.on_commit(
        partial(
            _send_replica_removed,
            replica.node_id,
            replica.model_name,
            replica.replica_index,
            reason,
        )
    )


def replica_unloading(replica_id: UUID) -> None:
    """One replica serves nobody any more; whoever stops processes may begin."""
    transaction.on_commit(partial(_send_replica_unloading, replica_id))


def _send_replica_unloading(replica_id: UUID) -> None:
    _log_errors(replica_unloading_signal.send_robust(sender=None, replica_id=replica_id))


def _send_capacity_changed(node_id: UUID) -> None:
    _log_errors(capacity_changed_signal.send_robust(sender=None, node_id=node_id))


def _send_room_came() -> None:
    _log_errors(room_came_signal.send_robust(sender=None))


def _send_service_lost() -> None:
    _log_errors(service_lost_signal.send_robust(sender=None))


def _send_replica_removed(node_id: UUID, model_name: str, index: int, reason: str) -> None:
    _log_errors(
        replica_removed_signal.send_robust(
            sender=None,
            node_id=node_id,
            model_name=model_name,
            replica_index=index,
            reason=reason,
        )
    )


def _log_errors(answers: Sequence[tuple[object, object]]) -> None:
    for receiver, answer in answers:
        if isinstance(answer, Exception):
            log.error("receiver failed", extra={"receiver": str(receiver)}, exc_info=answer)
