"""The buttons at the top of a node's page: one order each, asked back before it is given."""

from typing import Any

from django.http import HttpRequest
from django.utils import timezone
from unfold.enums import ActionVariant

from clustermgr.lib.admin import Dialog, ReadOnlyAdmin, ops_action
from nodes.admin import forms
from nodes.models import BackendNode
from nodes.services import (
    credentials,
    draining,
    lifecycle,
    obstacles,
    registration,
    retirement,
    sweeping,
)

Filled = dict[str, Any]


class NodeVerbs(ReadOnlyAdmin):
    """Each verb with its permission; `obstacles` says when its button makes sense."""

    verbs = {
        "approve": "nodes.approve_backendnode",
        "cordon": "nodes.cordon_backendnode",
        "drain": "nodes.drain_backendnode",
        "retire": "nodes.retire_backendnode",
        "label": "nodes.label_backendnode",
        "install": "backendops.request_operation",  # an action that backendops offers
    }
    actions_detail = [
        "approve",
        *("cordon", "uncordon", "drain", "move_deadline", "stop_worker", "resume", "release"),
        {"title": "More", "items": ["revoke_credentials", "release_token", "readmit", "retire"]},
    ]
    actions_detail_hide_default = True

    def offers(self, action_name: str, row: BackendNode) -> bool:
        obstacle: obstacles.Obstacle = getattr(obstacles, action_name)
        return not obstacle(row)

    @ops_action(
        "Approve",
        verb="approve",
        variant=ActionVariant.PRIMARY,
        icon="check",
        dialog=Dialog(
            title="Approve this node?",
            explain="From then on it may receive models and requests.",
            submit="Approve",
        ),
    )
    def approve(self, request: HttpRequest, node: BackendNode, _: Filled) -> str:
        registration.approve(node, by=request.user.get_username(), now=timezone.now())
        return f"{node.name} is approved."

    @ops_action(
        "Cordon",
        verb="cordon",
        icon="block",
        dialog=Dialog(
            title="Cordon this node?",
            explain="It keeps serving what it has; nothing new is put on it.",
            submit="Cordon",
            form=forms.ReasonDialog,
        ),
    )
    def cordon(self, request: HttpRequest, node: BackendNode, filled: Filled) -> str:
        by, now = request.user.get_username(), timezone.now()
        lifecycle.cordon(node, by=by, reason=filled["reason"], now=now)
        return f"{node.name} is cordoned."

    @ops_action(
        "Uncordon",
        verb="cordon",
        icon="check_circle",
        dialog=Dialog(
            title="Uncordon this node?", explain="It may get new work again.", submit="Uncordon"
        ),
    )
    def uncordon(self, request: HttpRequest, node: BackendNode, _: Filled) -> str:
        lifecycle.uncordon(node, by=request.user.get_username(), now=timezone.now())
        return f"{node.name} is no longer cordoned."

    @ops_action(
        "Drain",
        verb="drain",
        icon="logout",
        variant=ActionVariant.WARNING,
        dialog=Dialog(
            title="Drain this node?",
            explain="What is needed here is loaded elsewhere first, and serves until then; running"
            " requests finish. Whatever is left at the deadline is cut off.",
            submit="Drain",
            form=forms.DrainDialog,
        ),
    )
    def drain(self, request: HttpRequest, node: BackendNode, filled: Filled) -> str:
        by, now = request.user.get_username(), timezone.now()
        until = forms.deadline(filled, now=now)
        draining.drain(node, by=by, reason=filled["reason"], now=now, deadline=until)
        return f"{node.name} is being drained."

    @ops_action(
        "Move deadline",
        verb="drain",
        icon="schedule",
        dialog=Dialog(
            title="Move the drain's deadline?",
            explain="Requests that still run then are cut off.",
            submit="Move",
            form=forms.DeadlineDialog,
        ),
    )
    def move_deadline(self, request: HttpRequest, node: BackendNode, filled: Filled) -> str:
        by, now = request.user.get_username(), timezone.now()
        until = forms.deadline(filled, now=now)
        draining.drain(node, by=by, reason=node.drain_reason, now=now, deadline=until)
        ending = f"ends by {until:%H:%M} UTC" if until else "has no deadline"
        return f"The drain of {node.name} {ending}."

    @ops_action(
        "Stop worker",
        verb="drain",
        icon="power_settings_new",
        dialog=Dialog(
            title="Stop this node's worker?",
            explain="It exits as soon as the node is empty. What starts it on its machine may start"
            " it again; the drain stays.",
            submit="Stop worker",
        ),
    )
    def stop_worker(self, request: HttpRequest, node: BackendNode, _: Filled) -> str:
        draining.stop_worker(node, by=request.user.get_username(), now=timezone.now())
        return f"The worker of {node.name} stops when the node is empty."

    @ops_action(
        "Resume",
        verb="drain",
        icon="login",
        variant=ActionVariant.PRIMARY,
        dialog=Dialog(
            title="Resume this node?",
            explain="The drain ends and requests come again. A cordon stays.",
            submit="Resume",
        ),
    )
    def resume(self, request: HttpRequest, node: BackendNode, _: Filled) -> str:
        draining.resume(node, by=request.user.get_username(), now=timezone.now())
        return f"{node.name} is resumed."

    @ops_action(
        "Release quarantine",
        verb="cordon",
        icon="lock_open",
        dialog=Dialog(
            title="Release this node from quarantine?",
            explain="It came and went too often. Release it when you know why.",
            submit="Release",
        ),
    )
    def release(self, request: HttpRequest, node: BackendNode, _: Filled) -> str:
        sweeping.release_quarantine(node, by=request.user.get_username(), now=timezone.now())
        return f"{node.name} is released from quarantine."

    @ops_action(
        "Revoke credentials",
        verb="retire",
        icon="vpn_key_off",
        dialog=Dialog(
            title="Revoke the node's credentials for the bus?",
            explain="Its connection is cut within seconds. It gets new ones when it registers"
            " again; a LocalAI worker does that when it is restarted.",
            submit="Revoke",
            form=forms.ReasonDialog,
        ),
    )
    def revoke_credentials(self, request: HttpRequest, node: BackendNode, filled: Filled) -> str:
        by, now = request.user.get_username(), timezone.now()
        count = credentials.revoke(node, by=by, reason=filled["reason"], now=now)
        return f"{count} credential{'' if count == 1 else 's'} of {node.name} revoked."

    @ops_action(
        "Release token",
        verb="retire",
        icon="key_off",
        dialog=Dialog(
            title="Release the node from its token?",
            explain="Until it registers with another token, nobody can speak for it.",
            submit="Release token",
        ),
    )
    def release_token(self, request: HttpRequest, node: BackendNode, _: Filled) -> str:
        retirement.release_token(node, by=request.user.get_username(), now=timezone.now())
        return f"{node.name} may register with another token."

    @ops_action(
        "Readmit",
        verb="retire",
        icon="undo",
        dialog=Dialog(
            title="Readmit this node?",
            explain="Its worker may register again.",
            submit="Readmit",
        ),
    )
    def readmit(self, request: HttpRequest, node: BackendNode, _: Filled) -> str:
        retirement.readmit(node, by=request.user.get_username(), now=timezone.now())
        return f"{node.name} is readmitted."

    @ops_action(
        "Retire",
        verb="retire",
        icon="delete_forever",
        variant=ActionVariant.DANGER,
        dialog=Dialog(
            title="Retire this node?",
            explain="Its replicas are forgotten and its worker is refused. History stays.",
            submit="Retire",
            form=forms.ReasonDialog,
        ),
    )
    def retire(self, request: HttpRequest, node: BackendNode, filled: Filled) -> str:
        by, now = request.user.get_username(), timezone.now()
        retirement.retire(node, by=by, reason=filled["reason"], now=now)
        return f"{node.name} is retired."
