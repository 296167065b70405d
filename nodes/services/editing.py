"""What every edit of a node shares: one holder at a time, one version per change."""

from datetime import datetime
from typing import Any

from django.db.models import F

from clustermgr.lib.errors import InvalidMove, NotFound, PreconditionFailed
from nodes.models import BackendNode
from nodes.services import facts


def hold(node: BackendNode, *, expected_version: int | None) -> BackendNode:
    """Read the row as it is and keep other edits away until commit.

    The version is compared here as
    well as in `change`, so that an edit that turns out to change nothing is refused, too.
    """
    held = facts.lockable().filter(pk=node.pk).first()
    if held is None:
        raise NotFound(f"There is no node {node}.")
    if held.retired_at is not None:
        raise InvalidMove(f"{held} is retired; readmit it first.")
    if expected_version not in (None, held.version):
        raise _stale(held)
    return held


def change(node: BackendNode, *, now: datetime, **changes: Any) -> None:
    """Write `changes` as the next version of the version that was read."""
    current = BackendNode.objects.filter(pk=node.pk, version=node.version)
    if not current.update(version=F("version") + 1, updated_at=now, **changes):
        raise _stale(node)
    node.refresh_from_db(fields=["version", "updated_at", *changes])


def _stale(node: BackendNode) -> PreconditionFailed:
    return PreconditionFailed(f"{node} was changed by somebody else; read it again.")
