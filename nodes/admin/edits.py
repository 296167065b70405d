"""Labels, taints and capacity, edited in place on a node's page."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone

from clustermgr.lib.admin import tell
from clustermgr.lib.errors import InvalidInput
from nodes.models import BackendNode
from nodes.services import capacity, labels, taints
from nodes.taints import Taint

# Does it and says so
Edit = Callable[[BackendNode, Any, str, datetime], str]


def _set_label(node: BackendNode, form: Any, by: str, now: datetime) -> str:
    key, value = form.get("key", "").strip(), form.get("value", "").strip()
    labels.merge_admin(node, {key: value}, by=by, now=now)
    return f"{node.name} now has {key}={value}."


def _remove_label(node: BackendNode, form: Any, by: str, now: datetime) -> str:
    key = form.get("key", "")
    labels.remove_admin(node, key, by=by, now=now)
    return f"The label {key} is no longer set by an operator."


def _add_taint(node: BackendNode, form: Any, by: str, now: datetime) -> str:
    given = {name: form.get(name, "").strip() for name in ("key", "value", "effect")}
    taint = Taint(**given)
    others = [one for one in _taints(node) if one.key != taint.key]
    _replace_taints(node, [*others, taint], form, by, now)
    return f"{node.name} now carries the taint {taint}."


def _remove_taint(node: BackendNode, form: Any, by: str, now: datetime) -> str:
    key = form.get("key", "")
    _replace_taints(node, [one for one in _taints(node) if one.key != key], form, by, now)
    return f"The taint {key} is gone."


def _set_slots(node: BackendNode, form: Any, by: str, now: datetime) -> str:
    count = _whole(form.get("value", ""))
    capacity.set_max_replicas(node, count, by=by, now=now)
    return f"{node.name} takes {count} replicas per model, whatever its worker says."


def _reset_slots(node: BackendNode, form: Any, by: str, now: datetime) -> str:
    held = capacity.reset_max_replicas(node, by=by, now=now)
    return (
        f"{node.name} takes {held.max_replicas_per_model} replicas per model, as its worker asks."
    )


def _set_budget(node: BackendNode, form: Any, by: str, now: datetime) -> str:
    held = capacity.set_vram_budget(node, form.get("value", ""), by=by, now=now)
    return f"The VRAM budget of {node.name} is {held.vram_budget or 'not limited'}."


def _reset_budget(node: BackendNode, form: Any, by: str, now: datetime) -> str:
    held = capacity.reset_vram_budget(node, by=by, now=now)
    asked = held.vram_budget or "not limited"
    return f"The VRAM budget of {node.name} is {asked}, as its worker asks."


# name -> (the tab it is on, what it does)
EDITS: dict[str, tuple[str, Edit]] = {
    "set-label": ("labels", _set_label),
    "remove-label": ("labels", _remove_label),
    "add-taint": ("labels", _add_taint),
    "remove-taint": ("labels", _remove_taint),
    "set-slots": ("capacity", _set_slots),
    "reset-slots": ("capacity", _reset_slots),
    "set-budget": ("capacity", _set_budget),
    "reset-budget": ("capacity", _reset_budget),
}


def edit(admin: Any, request: HttpRequest, node_id: str, name: str) -> HttpResponse:
    """Carry out one edit and go back to its tab."""
    if not admin.has_label_permission(request):
        raise PermissionDenied
    node = admin.get_object(request, node_id)
    if node is None or name not in EDITS:
        raise Http404
    tab, act = EDITS[name]
    by, now = request.user.get_username(), timezone.now()
    tell(admin, request, node, lambda: act(node, request.POST, by, now))
    page = reverse("admin:nodes_backendnode_change", args=[node.pk])
    return HttpResponseRedirect(f"{page}?tab={tab}")


def _taints(node: BackendNode) -> list[Taint]:
    return [Taint(key=row.key, value=row.value, effect=row.effect) for row in node.taints.all()]


def _replace_taints(
    node: BackendNode, wanted: list[Taint], form: Any, by: str, now: datetime
) -> None:
    # Read, changed and written back as a whole: only if nobody else did so meanwhile
    taints.replace(node, wanted, by=by, now=now, expected_version=_whole(form.get("version", "")))


def _whole(text: str) -> int:
    if not text.strip().isdecimal() or len(text) > 18:
        raise InvalidInput("That is not a whole number.")
    return int(text)
