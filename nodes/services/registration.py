"""How a machine comes in: it registers, an operator approves."""

from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Q

from clustermgr.lib.errors import Forbidden, Gone, InvalidMove
from clustermgr.lib.machine import move
from nodes import budgets
from nodes.models import BackendNode, JoinToken, NodeModel
from nodes.services import (
    announce,
    confirming,
    events,
    facts,
    flapping,
    jointokens,
    labels,
    refusals,
    replicas,
)
from nodes.states import Liveness, Severity
from nodes.wire import RegisterRequest

# At thirty a second: a registration costs us some 20 ms
PATIENCE_PER_WAITING = timedelta(seconds=1 / 30)
SOONEST, LATEST = timedelta(seconds=3), timedelta(seconds=30)
# What the worker says and we store as it is
TOLD = (
    *("node_type", "address", "http_address", "boot_id"),
    *("gpu_vendor", "gpu_compute_capability", "capability", "arch", "os"),
    *("total_vram", "total_ram", "available_ram", "total_disk", "available_disk"),
)
# What a re-registration is remembered by; readings that change by themselves tell nothing.
WATCHED = (
    *("node_type", "address", "http_address", "boot_id", "join_token_id"),
    *("gpu_vendor", "gpu_compute_capability", "capability"),
    *("total_vram", "total_ram", "total_disk"),
    *("max_replicas_per_model", "worker_max_replicas_per_model"),
    *("vram_budget", "vram_budget_bytes", "worker_vram_budget"),
    *("liveness", "left_at", "drain_requested_at"),
)


def register(request: RegisterRequest, *, token: JoinToken, now: datetime) -> BackendNode:
    """Make or renew the node of this name; its id, approval and an operator's orders survive."""
    try:
        return _register(request, token, now)
    except (Forbidden, Gone) as refusal:
        refusals.note(
            "join.refused",
            who=f"node {request.name}",
            actor=f"token {token.name}",
            reason=str(refusal),
            now=now,
            node=BackendNode.objects.filter(name=request.name).first(),
            subject=request.name,
        )
        raise


@transaction.atomic
def approve(node: BackendNode, *, by: str, now: datetime) -> BackendNode:
    """Let a pending node work; no other path leads to routable."""
    pending = Q(approved_at=None, retired_at=None)
    if not facts.write(node, when=pending, now=now, approved_at=now, approved_by=by):
        raise InvalidMove(why_not_approve(node))
    events.record("node.approved", actor=by, now=now, node=node, after={"address": node.address})
    announce.capacity_changed(node.pk)
    return node


def ask_again_after(node: BackendNode) -> timedelta | None:
    """When a node that waits to be let in should ask again; None: it need not.

    Quickly as long as few wait, so that a click is felt; a thousand must not drown us.
    """
    if node.approved_at is not None:
        return None
    waiting = BackendNode.objects.waiting_for_approval().count()
    return min(max(PATIENCE_PER_WAITING * waiting, SOONEST), LATEST)


def why_not_approve(node: BackendNode) -> str:
    """The obstacle in a sentence; empty when there is none."""
    if node.retired_at is not None:
        return f"{node.name} is retired; readmit it first."
    if node.approved_at is None:
        return ""
    return (
        f"{node.name} is already approved"
        f" (by {node.approved_by} at {node.approved_at:%Y-%m-%d %H:%M %Z})."
    )


@transaction.atomic
def _register(request: RegisterRequest, token: JoinToken, now: datetime) -> BackendNode:
    jointokens.admit(token, name=request.name, node_type=request.node_type)
    node, new = _claim(request, token, now)
    joins = new or node.join_token_id is None
    if new:
        _remember_arrival(node, token, now)
    else:
        _renew(node, request, token, now)
    if joins:
        jointokens.check_room(token)
    labels.apply_registration(node, reported=request.labels, token_labels=token.labels, now=now)
    if node.approved_at is None and (by := _standing_approval(token)):
        approve(node, by=by, now=now)
    elif node.approved_at is not None:
        announce.capacity_changed(node.pk)
    return node


def _standing_approval(token: JoinToken) -> str:
    """Who approves without being asked, if anybody."""
    if token.auto_approve:
        return f"token {token.name}"
    return "CLUSTER_AUTO_APPROVE_NODES" if settings.CLUSTER.auto_approve_nodes else ""


def _claim(request: RegisterRequest, token: JoinToken, now: datetime) -> tuple[BackendNode, bool]:
    """Find or insert the row of this name, locked; the unique name decides every race."""
    known = facts.lockable().filter(name=request.name).first()
    if known is not None:
        return known, False
    fresh = BackendNode(
        name=request.name,
        last_heartbeat=now,
        liveness_changed_at=now,
        created_at=now,
        updated_at=now,
    )
    for column, value in _columns(fresh, request, token).items():
        setattr(fresh, column, value)
    BackendNode.objects.bulk_create([fresh], ignore_conflicts=True)
    node = facts.lockable().get(name=request.name)
    return node, node.pk == fresh.pk


def _columns(node: BackendNode, request: RegisterRequest, token: JoinToken) -> dict[str, Any]:
    """Every column the worker speaks for, zeros included: a full disk reports 0 and means it."""
    return {
        **{name: getattr(request, name) for name in TOLD},
        **_slots(node, request),
        **_budget(node, request),
        "join_token_id": token.pk,
    }


def _slots(node: BackendNode, request: RegisterRequest) -> dict[str, Any]:
    told = {"worker_max_replicas_per_model": request.max_replicas_per_model}
    if node.max_replicas_per_model_manually_set:
        return told
    return {**told, "max_replicas_per_model": request.max_replicas_per_model}


def _budget(node: BackendNode, request: RegisterRequest) -> dict[str, Any]:
    proposed = budgets.resolve(request.vram_budget, request.total_vram)
    budget, ceiling = request.vram_budget, proposed
    if node.vram_budget_manually_set:
        budget = node.vram_budget
        ceiling = budgets.resolve(budget, request.total_vram)
    return {
        "worker_vram_budget": request.vram_budget,
        "vram_budget": budget,
        "vram_budget_bytes": ceiling,
        "available_vram": budgets.cap(request.available_vram, ceiling=ceiling),
    }


def _remember_arrival(node: BackendNode, token: JoinToken, now: datetime) -> None:
    events.record(
        "node.registered",
        actor=events.by_worker(node),
        now=now,
        node=node,
        after={**_picture(node), "token": token.name},
    )


def _renew(node: BackendNode, request: RegisterRequest, token: JoinToken, now: datetime) -> None:
    _check_identity(node, token)
    _warn_of_collision(node, request, now)
    before, restarted = _picture(node), _restarted(node, request)
    quarantine = node.quarantined_until
    returns = restarted or node.liveness == Liveness.OFFLINE
    if node.liveness != Liveness.HEALTHY:
        move(node, Liveness.HEALTHY, liveness_changed_at=now, liveness_reason="", left_at=None)
    changes = _columns(node, request, token)
    if returns:
        changes |= flapping.columns_of_return(node, now=now)
    was_stopping = node.drain_by_worker
    if was_stopping:  # the shutdown it announced is over; an operator's drain is not
        changes |= facts.NO_DRAIN
    elif restarted and node.stop_told_at is not None:  # it obeyed, and was started again
        changes |= facts.NO_STOP
    facts.write(node, when=Q(), now=now, last_heartbeat=now, **changes)
    if was_stopping:
        replicas.restore(node, now=now)
    _settle_replicas(node, request, restarted=restarted, now=now)
    _remember_return(node, before, restarted=restarted, now=now)
    if node.quarantined_until != quarantine:
        flapping.remember(node, before=quarantine, now=now)


def _remember_return(
    node: BackendNode, before: dict[str, Any], *, restarted: bool, now: datetime
) -> None:
    after = _picture(node)
    changed = [name for name in WATCHED if before[name] != after[name]]
    if not changed and not restarted:  # it asks whether it was let in, or renews its credentials
        return
    events.record(
        "node.reregistered",
        actor=events.by_worker(node),
        now=now,
        node=node,
        reason="The worker restarted." if restarted else "",
        before={name: before[name] for name in changed},
        after={name: after[name] for name in changed},
    )


def _picture(node: BackendNode) -> dict[str, Any]:
    return {name: getattr(node, name) for name in WATCHED}


def _check_identity(node: BackendNode, token: JoinToken) -> None:
    if node.join_token_id not in (None, token.pk):
        raise Forbidden(f"{node.name} joined with another token than {token.name}.")
    if node.retired_at is not None:
        raise Gone(f"{node.name} was retired; an operator must readmit it.")


def _restarted(node: BackendNode, request: RegisterRequest) -> bool:
    """It said goodbye before, or it says that it is another process."""
    return node.left_at is not None or request.boot_id not in ("", node.boot_id)


def _settle_replicas(
    node: BackendNode, request: RegisterRequest, *, restarted: bool, now: datetime
) -> None:
    """Forget what died with the old process; a renewal of credentials (D-6) kills nothing."""
    if restarted:
        replicas.lose(
            NodeModel.objects.filter(node=node),
            reason="The worker restarted.",
            now=now,
            by=events.by_worker(node),
        )
    elif not request.boot_id:
        confirming.suspect(node, now=now)


def _warn_of_collision(node: BackendNode, request: RegisterRequest, now: datetime) -> None:
    """Two machines with one name share an id and every command; say so, but let it in.

    It may as well be one machine that moved: only an operator can tell.
    """
    fresh = now - node.last_heartbeat <= settings.CLUSTER.heartbeat_stale_after
    same_process = request.boot_id != "" and request.boot_id == node.boot_id
    if node.address == request.address or same_process or not fresh or node.left_at is not None:
        return
    events.record(
        "node.name_collision",
        actor=events.by_worker(node),
        now=now,
        node=node,
        severity=Severity.ATTENTION,
        reason=(
            f"A second worker registered as {node.name} while the first was alive:"
            " one of them needs another name, unless the machine moved."
        ),
        before={"address": node.address, "boot_id": node.boot_id},
        after={"address": request.address, "boot_id": request.boot_id},
    )
