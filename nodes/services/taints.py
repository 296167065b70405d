"""Taints: what an operator puts on a node to keep most work away."""

from collections.abc import Iterable
from datetime import datetime

from django.db import transaction

from clustermgr.lib.errors import InvalidInput
from nodes.labelling import MAX_LABELS
from nodes.models import BackendNode, NodeTaint
from nodes.services import announce, editing, events
from nodes.states import TaintEffect
from nodes.taints import Taint, check_taint


@transaction.atomic
def replace(
    node: BackendNode,
    taints: Iterable[Taint],
    *,
    by: str,
    now: datetime,
    expected_version: int | None = None,
) -> BackendNode:
    """Give the node exactly these taints; nothing at all happens if it has them."""
    wanted = _checked(taints)
    held = editing.hold(node, expected_version=expected_version)
    current = {row.key: _pure(row) for row in NodeTaint.objects.filter(node=held)}
    if current == wanted:
        return held
    editing.change(held, now=now)
    _store(held, wanted.values())
    events.record(
        "node.taints_changed",
        actor=by,
        now=now,
        node=held,
        before={"taints": sorted(map(str, current.values()))},
        after={"taints": sorted(map(str, wanted.values()))},
    )
    announce.capacity_changed(held.pk)
    return held


def _store(node: BackendNode, taints: Iterable[Taint]) -> None:
    NodeTaint.objects.filter(node=node).delete()
    NodeTaint.objects.bulk_create(
        NodeTaint(node=node, key=taint.key, value=taint.value, effect=taint.effect)
        for taint in taints
    )


def _checked(taints: Iterable[Taint]) -> dict[str, Taint]:
    found: dict[str, Taint] = {}
    for taint in taints:
        check_taint(taint, effects=TaintEffect.values)
        if taint.key in found:
            raise InvalidInput(f"The taint {taint.key} is named twice.")
        found[taint.key] = taint
    if len(found) > MAX_LABELS:
        raise InvalidInput(f"A node has at most {MAX_LABELS} taints.")
    return found


def _pure(row: NodeTaint) -> Taint:
    return Taint(key=row.key, value=row.value, effect=row.effect)
