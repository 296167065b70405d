"""How much a node may carry: the worker proposes, an operator's override sticks."""

import logging
from collections.abc import Collection
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Value
from django.db.models.functions import Least

from clustermgr.lib.errors import InvalidInput
from nodes import budgets
from nodes.fields import ByteCount
from nodes.models import BackendNode
from nodes.services import announce, editing, events, facts, labels
from nodes.wire import MAX_SLOTS

log = logging.getLogger(__name__)


@transaction.atomic
def set_max_replicas(
    node: BackendNode, value: int, *, by: str, now: datetime, expected_version: int | None = None
) -> BackendNode:
    """Fix how many replicas of one model fit, whatever the worker says from now on."""
    if not 1 <= value <= MAX_SLOTS:
        raise InvalidInput(f"A node has 1 to {MAX_SLOTS} slots per model, not {value}.")
    held = editing.hold(node, expected_version=expected_version)
    return _set_slots(held, value, manual=True, by=by, now=now)


@transaction.atomic
def reset_max_replicas(
    node: BackendNode, *, by: str, now: datetime, expected_version: int | None = None
) -> BackendNode:
    """Go back to the number the worker asked for."""
    held = editing.hold(node, expected_version=expected_version)
    return _set_slots(held, held.worker_max_replicas_per_model, manual=False, by=by, now=now)


@transaction.atomic
def set_vram_budget(
    node: BackendNode, text: str, *, by: str, now: datetime, expected_version: int | None = None
) -> BackendNode:
    """Fix the VRAM budget; "" means no cap, even if the worker asks for one."""
    budgets.resolve(text, 0)
    held = editing.hold(node, expected_version=expected_version)
    return _set_budget(held, text.strip(), manual=True, by=by, now=now)


@transaction.atomic
def reset_vram_budget(
    node: BackendNode, *, by: str, now: datetime, expected_version: int | None = None
) -> BackendNode:
    """Go back to the budget the worker asked for."""
    held = editing.hold(node, expected_version=expected_version)
    return _set_budget(held, held.worker_vram_budget, manual=False, by=by, now=now)


@transaction.atomic
def follow_hardware(node_ids: Collection[UUID], *, now: datetime) -> None:
    """Compute anew what rests on a machine's memory and card: the budget's bytes, the labels."""
    for node in facts.lockable().filter(pk__in=node_ids).order_by("pk"):
        worker = events.by_worker(node)
        ceiling = _ceiling(node, node.vram_budget)
        if ceiling != node.vram_budget_bytes:
            _change(node, {"vram_budget_bytes": ceiling}, by=worker, now=now)
        labels.refresh_auto(node, actor=worker, now=now)


def _set_slots(
    node: BackendNode, value: int, *, manual: bool, by: str, now: datetime
) -> BackendNode:
    changes = {"max_replicas_per_model": value, "max_replicas_per_model_manually_set": manual}
    if _change(node, changes, by=by, now=now):
        labels.refresh_auto(node, actor=by, now=now)
    return node


def _set_budget(
    node: BackendNode, text: str, *, manual: bool, by: str, now: datetime
) -> BackendNode:
    ceiling = _ceiling(node, text)
    changes = {
        "vram_budget": text,
        "vram_budget_bytes": ceiling,
        "vram_budget_manually_set": manual,
    }
    # Down at once: waiting for the next report would let ten more seconds of placements in.
    # Up has to wait for it: only the worker knows what is really free. Its next report tells
    # whoever waits for room (`beating`).
    available = Least("available_vram", Value(ceiling), output_field=ByteCount())
    recapped = {"available_vram": available} if ceiling else {}
    _change(node, changes, by=by, now=now, **recapped)
    return node


def _ceiling(node: BackendNode, text: str) -> int:
    try:
        return budgets.resolve(text, int(node.total_vram))
    except InvalidInput:
        # An old worker's text that we would refuse today must not take the node out of service
        log.warning("stored VRAM budget ignored", extra={"node": node.name, "budget": text})
        return 0


def _change(
    node: BackendNode, changes: dict[str, Any], *, by: str, now: datetime, **along: Any
) -> bool:
    before = {name: getattr(node, name) for name in changes}
    if before == changes:
        return False
    editing.change(node, now=now, **changes, **along)
    events.record(
        "node.capacity_changed", actor=by, now=now, node=node, before=before, after=changes
    )
    announce.capacity_changed(node.pk)
    return True
