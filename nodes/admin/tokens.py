"""Join tokens: seen and revoked here, made on the page "Add a worker", never edited."""

from datetime import datetime
from typing import Any

from django.contrib import admin
from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.decorators import display
from unfold.enums import ActionVariant

from clustermgr.lib.admin import Dialog, EmptyHint, ReadOnlyAdmin, ops_action
from nodes.admin import addworker, forms
from nodes.models import JoinToken
from nodes.presenting.displays import ago
from nodes.services import jointokens

PRESENT = Count("nodes", filter=Q(nodes__retired_at=None))


@admin.register(JoinToken)
class JoinTokenAdmin(ReadOnlyAdmin):
    list_display = [
        *("name", "state", "joined", "used", "terms", "created_by", "created_at"),
    ]
    search_fields = ["name", "prefix", "bound_name"]
    fields = [
        *("name", "prefix", "state", "joined", "used", "max_nodes", "allowed_types", "labels"),
        *("auto_approve", "one_machine", "bound_name", "from_environment"),
        *("created_at", "created_by", "expires_at", "revoked_at", "revoked_by"),
    ]
    readonly_fields = ["state", "joined", "used"]
    empty_hint = EmptyHint(
        title="No join tokens", text="Without one no worker can join: add a worker to make one."
    )
    list_before_template = "console/nodes/before_tokens.html"
    actions_detail = ["revoke"]
    verbs = {"revoke": "nodes.change_jointoken", "issue": "nodes.add_jointoken"}

    def get_queryset(self, request: HttpRequest) -> QuerySet[JoinToken]:
        return JoinToken.objects.annotate(node_count=PRESENT)

    def get_urls(self) -> list[URLPattern]:
        page = self.admin_site.admin_view(addworker.AddWorkerView.as_view(model_admin=self))
        return [path("add-worker/", page, name="add_worker"), *super().get_urls()]

    def add_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        return HttpResponseRedirect(reverse("admin:add_worker"))

    def offers(self, action_name: str, row: JoinToken) -> bool:
        return row.revoked_at is None

    @display(
        description="State", label={"live": "success", "revoked": "danger", "expired": "warning"}
    )
    def state(self, token: JoinToken) -> str:
        if token.revoked_at is not None:
            return "revoked"
        return "live" if jointokens.usable(token, timezone.now()) else "expired"

    @display(description="Nodes joined")
    def joined(self, token: Any) -> SafeString:
        limit = f" of {token.max_nodes}" if token.max_nodes else ""
        return format_html("{}{}", token.node_count, limit)

    @display(description="Last used", ordering="last_used_at")
    def used(self, token: JoinToken) -> str:
        return ago(token.last_used_at, now=timezone.now()) if token.last_used_at else "never"

    @display(description="Terms")
    def terms(self, token: JoinToken) -> str:
        return terms_in_words(token)

    @ops_action(
        "Revoke",
        verb="revoke",
        icon="block",
        variant=ActionVariant.DANGER,
        dialog=Dialog(
            title="Revoke this token?",
            explain="Every node that joined with it is refused from its next heartbeat on.",
            submit="Revoke",
            form=forms.ReasonDialog,
        ),
    )
    def revoke(self, request: HttpRequest, token: JoinToken, filled: dict[str, Any]) -> str:
        by, now = request.user.get_username(), timezone.now()
        jointokens.revoke(token, by=by, now=now, reason=filled["reason"])
        return f"The token {token.name} is revoked."


def terms_in_words(token: JoinToken) -> str:
    """What is special about it, in a few words."""
    words = [
        "approves by itself" if token.auto_approve else "",
        f"only for {token.bound_name or 'one machine'}" if token.one_machine else "",
        f"only {', '.join(token.allowed_types)}" if token.allowed_types else "",
        ", ".join(f"{key}={value}" for key, value in token.labels.items()),
        _until(token.expires_at),
        "from the environment" if token.from_environment else "",
    ]
    return "; ".join(filter(None, words)) or "no limits"


def _until(moment: datetime | None) -> str:
    return f"until {moment:%Y-%m-%d %H:%M} UTC" if moment else ""
