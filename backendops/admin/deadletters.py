"""Dead letters by cause, and many of them at once: put back or let go, after a preview."""

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
from unfold.contrib.filters.admin import DropdownFilter
from unfold.widgets import UnfoldAdminTextInputWidget

from backendops.admin import operationpage
from backendops.models import PendingBackendOp
from backendops.presenting import shares
from backendops.querysets import PendingBackendOpQuerySet
from backendops.services import deadletters, redriving
from clustermgr.lib.admin import ConsoleChangeList, run_each

MOST_CAUSES = 20
ANY = "?"  # for errors that say nothing
Act = Callable[[PendingBackendOp, str, datetime, str], object]


class DeadLetterList(ConsoleChangeList):
    """Rows carry their `share`, whose buttons are the user's."""

    result_list: Any

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        self.result_list = list(self.result_list)
        may, now = operationpage.may(request), timezone.now()
        for share in shares.shares(self.result_list, may=may, now=now):
            share.op.share = share  # type: ignore[attr-defined]

    def get_queryset(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return super().get_queryset(request, *args, **kwargs).dead()


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    name: str
    verb: str
    title: str
    explain: str
    done: str
    act: Act
    needs_reason: bool = False


def _redrive(op: PendingBackendOp, by: str, now: datetime, reason: str) -> object:
    return redriving.redrive([op], by=by, now=now)


def _discard(op: PendingBackendOp, by: str, now: datetime, reason: str) -> object:
    return redriving.discard([op], by=by, reason=reason, now=now)


ORDERS = {
    "redrive": Order(
        name="redrive",
        verb="request",
        title="Try again",
        explain="They go back into the queue exactly as they were, with a clean slate.",
        done="Put back into the queue",
        act=_redrive,
    ),
    "discard": Order(
        name="discard",
        verb="discard",
        title="Discard",
        explain="They are not tried again, and stay in the record with your reason.",
        done="Discarded",
        act=_discard,
        needs_reason=True,
    ),
}


class Why(django_forms.Form):
    reason = django_forms.CharField(
        max_length=255,
        widget=UnfoldAdminTextInputWidget,
        help_text="It stays in the record: whoever finds it missing will ask.",
    )


class CauseFilter(DropdownFilter):
    title = parameter_name = "cause"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        found = deadletters.causes()[:MOST_CAUSES]
        return [(cause.words or ANY, cause.words or "no error told") for cause in found]

    def queryset(self, request: HttpRequest, rows: PendingBackendOpQuerySet) -> Any:
        wanted = (self.value() or "").replace("\x00", "")
        if not wanted:
            return rows
        return rows & deadletters.of_cause("" if wanted == ANY else wanted)


def _action(order: Order) -> Any:
    def preview(admin: Any, request: HttpRequest, rows: Iterable[PendingBackendOp]) -> HttpResponse:
        return _preview(admin, request, order, list(rows), form=Why())

    preview.__name__ = f"{order.name}_selected"
    preview.short_description = f"{order.title} ..."  # type: ignore[attr-defined]
    preview.allowed_permissions = [order.verb]  # type: ignore[attr-defined]
    return preview


# Django's list actions; each only leads to its preview
ACTIONS = [_action(order) for order in ORDERS.values()]


def confirm(admin: Any, request: HttpRequest, name: str) -> HttpResponse:
    """Carry out a previewed order; what is no dead letter any more comes back as a sentence."""
    order = ORDERS.get(name)
    if order is None:
        raise Http404
    if not getattr(admin, f"has_{order.verb}_permission")(request):
        raise PermissionDenied
    words = request.POST.get("ids", "").split(",")
    ids = [int(word) for word in words if word.isdecimal() and len(word) < 19]
    rows = list(admin.get_queryset(request).dead().filter(pk__in=ids))
    form = Why(request.POST)
    if order.needs_reason and not form.is_valid():
        return _preview(admin, request, order, rows, form=form)
    reason = form.cleaned_data["reason"] if order.needs_reason else ""
    by, now = request.user.get_username(), timezone.now()
    run_each(admin, request, rows, lambda op: order.act(op, by, now, reason), done=order.done)
    return HttpResponseRedirect(reverse("admin:backendops_pendingbackendop_changelist"))


def _preview(
    admin: Any,
    request: HttpRequest,
    order: Order,
    rows: list[PendingBackendOp],
    *,
    form: django_forms.Form,
) -> HttpResponse:
    many = "" if len(rows) == 1 else "s"
    context = {
        **admin.admin_site.each_context(request),
        "title": f"{order.title}: {len(rows)} dead letter{many}?",
        "opts": admin.model._meta,
        "order": order,
        "form": form if order.needs_reason else None,
        "rows": rows,
        "ids": ",".join(str(op.pk) for op in rows),
    }
    return TemplateResponse(request, "console/operations/deadletters_preview.html", context)
