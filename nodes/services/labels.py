"""Labels: every owner edits its own, the strongest owner's value is the one that counts."""

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from uuid import UUID

from django.db import transaction

from clustermgr.lib.errors import Conflict
from nodes.labelling import AUTO_KEYS, auto_labels, check_all, check_key
from nodes.models import BackendNode, NodeLabel
from nodes.services import announce, editing, events
from nodes.states import LABEL_PRECEDENCE, LabelSource

Pairs = Mapping[str, str]
Edit = Callable[..., BackendNode]
Owned = Mapping[LabelSource, Pairs]

OWNERS = {
    LabelSource.ADMIN: "set by an operator",
    LabelSource.TOKEN: "given by the join token",
    LabelSource.WORKER: "sent by the worker",
    LabelSource.AUTO: "computed from the node's own facts",
}


def effective(node_ids: Collection[UUID]) -> dict[UUID, dict[str, str]]:
    """The labels that count, of every node asked for, in one statement."""
    found: dict[UUID, dict[str, str]] = {node_id: {} for node_id in node_ids}
    rows = NodeLabel.objects.filter(node__in=node_ids).weakest_first()
    for node_id, key, value in rows.values_list("node_id", "key", "value"):
        found[node_id][key] = value
    # As Go writes a map, and so that an answer does not change while its labels do not
    return {node_id: dict(sorted(labels.items())) for node_id, labels in found.items()}


@transaction.atomic
def apply_registration(
    node: BackendNode, *, reported: Mapping[str, object], token_labels: Pairs, now: datetime
) -> BackendNode:
    """Take over what a registering worker says of itself, and what its token says of it.

    Each replaces that owner's own set. LocalAI merges, because there an operator's labels live
    in the same rows and would be lost; ours are rows of another owner, so a label that was
    taken out of the worker's flags can really go away. The node's columns are written first:
    the computed labels are read from them.
    """
    worker = {key: value for key, value in reported.items() if key not in AUTO_KEYS}
    wanted = {
        LabelSource.WORKER: check_all(worker),
        LabelSource.TOKEN: check_all(token_labels),
    }
    held = editing.hold(node, expected_version=None)
    return _write(held, {**wanted, **_auto(held)}, actor=events.by_worker(held), now=now)


def refresh_auto(node: BackendNode, *, actor: str, now: datetime) -> None:
    """Let the computed labels follow the node's facts; `node` is held by the caller."""
    _write(node, _auto(node), actor=actor, now=now)


@transaction.atomic
def replace_admin(
    node: BackendNode,
    labels: Mapping[str, object],
    *,
    by: str,
    now: datetime,
    expected_version: int | None = None,
) -> BackendNode:
    """Make the operators' labels such that every pair in `labels` is in effect.

    What another owner already says is not copied: a client that reads all labels, changes one
    and sends them back must not freeze the others at what they are today. Keys left out go
    only as far as operators own them.
    """
    asked = check_all(labels)
    held = editing.hold(node, expected_version=expected_version)
    owned = _owned(held)
    mine = owned[LabelSource.ADMIN]
    others = _strongest({**owned, LabelSource.ADMIN: {}})
    kept = {k: v for k, v in asked.items() if k in mine or others.get(k) != v}
    return _write(held, {LabelSource.ADMIN: kept}, actor=by, now=now)


@transaction.atomic
def merge_admin(
    node: BackendNode,
    labels: Mapping[str, object],
    *,
    by: str,
    now: datetime,
    expected_version: int | None = None,
) -> BackendNode:
    """Pin these labels and leave the operators' other ones alone."""
    asked = check_all(labels)
    held = editing.hold(node, expected_version=expected_version)
    mine = check_all({**_owned(held)[LabelSource.ADMIN], **asked})
    return _write(held, {LabelSource.ADMIN: mine}, actor=by, now=now)


@transaction.atomic
def remove_admin(
    node: BackendNode, key: str, *, by: str, now: datetime, expected_version: int | None = None
) -> BackendNode:
    """Take an operator's label away; the next owner's value shows again. Absent: nothing to do."""
    check_key(key)
    held = editing.hold(node, expected_version=expected_version)
    owned = _owned(held)
    mine = dict(owned[LabelSource.ADMIN])
    if mine.pop(key, None) is None:
        _refuse_foreign(key, owned, held)
        return held
    return _write(held, {LabelSource.ADMIN: mine}, actor=by, now=now)


def _auto(node: BackendNode) -> dict[LabelSource, dict[str, str]]:
    found = auto_labels(
        name=node.name,
        gpu_vendor=node.gpu_vendor,
        total_vram=int(node.total_vram),
        slots=node.max_replicas_per_model,
        arch=node.arch,
        os=node.os,
    )
    return {LabelSource.AUTO: found}


def _owned(node: BackendNode) -> dict[LabelSource, dict[str, str]]:
    owned: dict[LabelSource, dict[str, str]] = {source: {} for source in LabelSource}
    for label in NodeLabel.objects.filter(node=node):
        owned[LabelSource(label.source)][label.key] = label.value
    return owned


def _strongest(owned: Owned) -> dict[str, str]:
    merged: dict[str, str] = {}
    for source in reversed(LABEL_PRECEDENCE):
        merged.update(owned.get(source, {}))
    return merged


def _refuse_foreign(key: str, owned: Owned, node: BackendNode) -> None:
    for source in LABEL_PRECEDENCE:
        if key in owned[source]:
            raise Conflict(
                f"{key} on {node} was {OWNERS[source]} and would come back; "
                "set a value of your own to override it."
            )


def _write(node: BackendNode, wanted: Owned, *, actor: str, now: datetime) -> BackendNode:
    """Give each owner in `wanted` exactly these labels; nothing at all happens if it has them."""
    owned = _owned(node)
    changed = [source for source in wanted if owned[source] != wanted[source]]
    if not changed:
        return node
    editing.change(node, now=now)
    for source in changed:
        _store(node, source, before=owned[source], after=wanted[source])
    events.record(
        "node.labels_changed",
        actor=actor,
        now=now,
        node=node,
        before={str(source): owned[source] for source in changed},
        after={str(source): wanted[source] for source in changed},
    )
    if node.approved_at is not None:  # a selector that matched nothing may match now
        announce.capacity_changed(node.pk)
    return node


def _store(node: BackendNode, source: LabelSource, *, before: Pairs, after: Pairs) -> None:
    gone = before.keys() - after.keys()
    if gone:
        NodeLabel.objects.filter(node=node, source=source, key__in=gone).delete()
    NodeLabel.objects.bulk_create(
        (
            NodeLabel(node=node, key=key, value=value, source=source)
            for key, value in after.items()
            if before.get(key) != value
        ),
        update_conflicts=True,
        unique_fields=["node", "key", "source"],
        update_fields=["value"],
    )
