"""One order for many nodes: first a page that says who is touched and who is not, and why."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django import forms as django_forms
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone

from clustermgr.lib.admin import run_each
from nodes.admin import forms
from nodes.admin.live import ids_in
from nodes.models import BackendNode
from nodes.services import draining, labels, lifecycle, obstacles, registration

Act = Callable[[BackendNode, str, datetime, dict[str, Any]], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What the action bar offers."""

    name: str
    verb: str
    title: str
    explain: str
    done: str
    act: Act
    obstacle: obstacles.Obstacle
    form: type[django_forms.Form] = forms.Nothing


def _cordon(node: BackendNode, by: str, now: datetime, filled: dict[str, Any]) -> object:
    return lifecycle.cordon(node, by=by, reason=filled["reason"], now=now)


def _drain(node: BackendNode, by: str, now: datetime, filled: dict[str, Any]) -> object:
    until = forms.deadline(filled, now=now)
    return draining.drain(node, by=by, reason=filled["reason"], now=now, deadline=until)


ORDERS = [
    Order(
        name="approve",
        verb="approve",
        title="Approve",
        explain="They may receive models and requests from then on.",
        done="Approved",
        act=lambda node, by, now, _: registration.approve(node, by=by, now=now),
        obstacle=obstacles.approve,
    ),
    Order(
        name="cordon",
        verb="cordon",
        title="Cordon",
        explain="They keep serving what they have; nothing new is put on them.",
        done="Cordoned",
        act=_cordon,
        obstacle=obstacles.cordon,
        form=forms.Reason,
    ),
    Order(
        name="uncordon",
        verb="cordon",
        title="Uncordon",
        explain="They may get new work again.",
        done="Uncordoned",
        act=lambda node, by, now, _: lifecycle.uncordon(node, by=by, now=now),
        obstacle=obstacles.uncordon,
    ),
    Order(
        name="drain",
        verb="drain",
        title="Drain",
        explain="No new requests; running ones finish, at the latest by the deadline.",
        done="Draining",
        act=_drain,
        obstacle=obstacles.drain,
        form=forms.Drain,
    ),
    Order(
        name="resume",
        verb="drain",
        title="Resume",
        explain="Their drain ends and requests come again. A cordon stays.",
        done="Resumed",
        act=lambda node, by, now, _: draining.resume(node, by=by, now=now),
        obstacle=obstacles.resume,
    ),
    Order(
        name="stop_worker",
        verb="drain",
        title="Stop the workers of",
        explain="Each exits as soon as its node is empty. What starts it on its machine may start"
        " it again; the drain stays.",
        done="Worker to be stopped",
        act=lambda node, by, now, _: draining.stop_worker(node, by=by, now=now),
        obstacle=obstacles.stop_worker,
    ),
    Order(
        name="label",
        verb="label",
        title="Add a label to",
        explain="It is pinned: it stands over what workers and tokens say.",
        done="Labelled",
        act=lambda node, by, now, filled: labels.merge_admin(node, filled["label"], by=by, now=now),
        obstacle=obstacles.label,
        form=forms.Label,
    ),
]
BY_NAME = {order.name: order for order in ORDERS}


def offer(action: Any) -> None:
    """Let an app that stands on nodes put an action of its own into the node list's bar."""
    ACTIONS.append(action)


def _action(order: Order) -> Any:
    def preview(admin: Any, request: HttpRequest, rows: Iterable[BackendNode]) -> HttpResponse:
        return _preview(admin, request, order, list(rows), form=order.form())

    preview.__name__ = f"{order.name}_selected"
    preview.short_description = f"{order.title} ..."  # type: ignore[attr-defined]
    preview.allowed_permissions = [order.verb]  # type: ignore[attr-defined]
    return preview


# Django's list actions; each only leads to its preview
ACTIONS = [_action(order) for order in ORDERS]


def confirm(admin: Any, request: HttpRequest, name: str) -> HttpResponse:
    """Carry out a previewed order; obstacles that arose meanwhile come back as sentences."""
    order = _allowed(admin, request, name)
    ids = ids_in(request.POST.get("ids", ""))
    rows = list(admin.get_queryset(request).filter(pk__in=ids).order_by("name"))
    form = order.form(request.POST)
    if not form.is_valid():
        return _preview(admin, request, order, rows, form=form)
    by, now = request.user.get_username(), timezone.now()
    run_each(
        admin,
        request,
        rows,
        lambda node: order.act(node, by, now, form.cleaned_data),
        done=order.done,
    )
    return HttpResponseRedirect(_list_page(request))


def _allowed(admin: Any, request: HttpRequest, name: str) -> Order:
    order = BY_NAME.get(name)
    if order is None:
        raise Http404
    if not getattr(admin, f"has_{order.verb}_permission")(request):
        raise PermissionDenied
    return order


def _list_page(request: HttpRequest) -> str:
    query = request.POST.get("query", "")
    return reverse("admin:nodes_backendnode_changelist") + (f"?{query}" if query else "")


def _preview(
    admin: Any,
    request: HttpRequest,
    order: Order,
    rows: list[BackendNode],
    *,
    form: django_forms.Form,
) -> HttpResponse:
    judged = [(node, order.obstacle(node)) for node in rows]
    touched = [node for node, why in judged if not why]
    context = {
        **admin.admin_site.each_context(request),
        "title": f"{order.title} {len(touched)} node{'' if len(touched) == 1 else 's'}?",
        "opts": admin.model._meta,
        "order": order,
        "form": form,
        "touched": touched,
        "skipped": [(node, why) for node, why in judged if why],
        "ids": ",".join(str(node.pk) for node in touched),
        "query": request.POST.get("query", request.META.get("QUERY_STRING", "")),
        "busy": sum(getattr(node, "in_flight_count", 0) for node in touched),
    }
    return TemplateResponse(request, "console/nodes/preview.html", context)
