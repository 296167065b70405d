"""An operator's hand: load one more, or move one."""

from datetime import datetime
from uuid import UUID

from django.db.models import Q

from clustermgr.lib.errors import Conflict, InvalidInput, NotFound
from clustermgr.lib.text import uuid_in
from nodes.models import BackendNode, NodeModel
from nodes.states import ReplicaState
from scheduling.models import LoadJob
from scheduling.services import defining, placing, stopping
from scheduling.states import Cause


def node_called(text: str) -> BackendNode:
    """A node by its name or its id."""
    key = uuid_in(text)
    clean = text.replace("\x00", "")
    node = BackendNode.objects.present().filter(Q(name=clean) | Q(pk=key)).first()
    if node is None:
        raise NotFound(f"There is no node {text}.")
    return node


def load(model_name: str, *, by: str, now: datetime, node: str = "") -> LoadJob:
    """Load one more replica, where the scheduler thinks best or on that node."""
    name = defining.find(model_name).model_name
    where = node_called(node.strip()) if node.strip() else None
    return placing.place(name, cause=Cause.OPERATOR, by=by, now=now, node=where)


def unload(
    model_name: str,
    *,
    by: str,
    now: datetime,
    node: UUID | None,
    index: int | None,
    force: bool,
) -> int:
    """Unload a model, everywhere or in one place; says how many. A name that means none is told."""
    count = stopping.stop_all(model_name, by=by, now=now, node=node, index=index, force=force)
    if not count and not NodeModel.objects.filter(model_name=model_name).exists():
        defining.find(model_name)
    return count


def move(replica: NodeModel, *, to: str, by: str, now: datetime) -> LoadJob:
    """Load the model on another node; this replica serves until that is done, and goes then."""
    if not to.strip():
        raise InvalidInput("Say which node it shall move to.")
    where = node_called(to.strip())
    if where.pk == replica.node_id:
        raise Conflict(f"{replica.process_key} is on {where.name} already.")
    if replica.withdrawn_at is not None:
        raise Conflict(f"{replica.process_key} is leaving {replica.node.name} already.")
    if replica.state != ReplicaState.LOADED:
        raise Conflict(f"{replica.process_key} is {replica.state}; only a loaded one can move.")
    name = replica.model_name
    return placing.place(name, cause=Cause.OPERATOR, by=by, now=now, node=where, replaces=replica)
