"""Tells a node that what it is at was cancelled, where the worker can be told."""

from datetime import datetime

from django.db import connection

from backendops.models import PendingBackendOp
from backendops.services import changes
from backendops.states import OpState
from clustermgr.lib.errors import BusError, NodeRefused, NodeUnreachable
from nodes.gateway import NodeGateway

WILL_FINISH = "The node will finish; its result will be recorded."
STOPPING = "The node is stopping it."


def send_cancel(op_id: int, *, gateway: NodeGateway, now: datetime) -> None:
    """Ask the worker to stop; what became of it comes with the answer to the first request."""
    op = PendingBackendOp.objects.filter(pk=op_id, state=OpState.CANCELLING).first()
    if op is None:
        return
    connection.close()
    try:
        heard = gateway.cancel(op.node_id, op_id=op.wire_id)
    except (NodeUnreachable, NodeRefused):  # LocalAI's workers do not listen to this
        heard = False
    except BusError:
        return  # the next check tells how it ended
    words = STOPPING if heard else WILL_FINISH
    rows = PendingBackendOp.objects.filter(pk=op_id, state=OpState.CANCELLING, fence=op.fence)
    note = f"{op.note.split(' The node was asked')[0]} {words}"[:500]
    rows.update(note=note, changed_at=now, change=changes.NEXT_CHANGE)
