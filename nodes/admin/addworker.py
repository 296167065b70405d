"""The page "Add a worker": makes a token and shows, once, the commands that use it."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from django import forms
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.generic import FormView
from unfold.views import UnfoldModelAdminViewMixin
from unfold.widgets import (
    UnfoldAdminCheckboxSelectMultipleWidget,
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
    UnfoldBooleanSwitchWidget,
)

from clustermgr.lib.errors import DomainError, InvalidInput
from nodes.admin.forms import pair
from nodes.services import credentials, jointokens
from nodes.states import NodeType

LIFETIMES = {"1": "1 hour", "24": "1 day", "168": "7 days", "720": "30 days", "": "never expires"}
HOME = {"127.0.0.1", "localhost", "::1", "0.0.0.0"}


class AddWorkerForm(forms.Form):
    name = forms.CharField(
        max_length=100,
        widget=UnfoldAdminTextInputWidget({"placeholder": "rack 3, 4090 boxes"}),
        help_text="What you will recognise the token by.",
    )
    lifetime = forms.ChoiceField(
        label="Expires after",
        choices=list(LIFETIMES.items()),
        initial="",
        required=False,
        widget=UnfoldAdminSelectWidget,
        help_text="Nodes that joined must keep using it: an expired token shuts them out, too.",
    )
    max_nodes = forms.IntegerField(
        label="At most this many nodes",
        min_value=1,
        max_value=2**31 - 1,
        required=False,
        widget=UnfoldAdminIntegerFieldWidget,
        help_text="Empty: no limit.",
    )
    types = forms.MultipleChoiceField(
        label="Only these types",
        choices=[(kind.value, kind.value) for kind in NodeType],
        required=False,
        widget=UnfoldAdminCheckboxSelectMultipleWidget,
        help_text="None chosen: every type.",
    )
    labels = forms.CharField(
        required=False,
        widget=UnfoldAdminTextareaWidget({"rows": 2, "placeholder": "tier=fast"}),
        help_text="One key=value per line; every node that joins gets them.",
    )
    auto_approve = forms.BooleanField(
        label="Approve by itself",
        required=False,
        widget=UnfoldBooleanSwitchWidget,
        help_text="Whoever holds the token gets in without being asked about.",
    )
    one_machine = forms.BooleanField(
        label="For one machine",
        required=False,
        widget=UnfoldBooleanSwitchWidget,
        help_text="Binds to the first machine that uses it.",
    )

    def clean_labels(self) -> dict[str, str]:
        found: dict[str, str] = {}
        try:
            for line in filter(str.strip, self.cleaned_data["labels"].splitlines()):
                found |= pair(line)
        except InvalidInput as refusal:
            raise forms.ValidationError(str(refusal)) from refusal
        return found

    def issue(self, *, by: str) -> str:
        """Make the token; the secret is known only here."""
        given, now = self.cleaned_data, timezone.now()
        hours = given["lifetime"]
        terms = jointokens.Terms(
            expires_at=now + timedelta(hours=int(hours)) if hours else None,
            max_nodes=given["max_nodes"],
            allowed_types=tuple(NodeType(kind) for kind in given["types"]),
            labels=given["labels"],
            auto_approve=given["auto_approve"],
            one_machine=given["one_machine"],
        )
        return jointokens.issue(given["name"], by=by, now=now, terms=terms)[1]


class AddWorkerView(UnfoldModelAdminViewMixin, FormView):
    title = "Add a worker"
    permission_required = ("nodes.add_jointoken",)
    raise_exception = True
    form_class = AddWorkerForm
    template_name = "console/nodes/add_worker.html"

    def form_valid(self, form: Any) -> HttpResponse:
        try:
            secret = form.issue(by=self.request.user.get_username())
        except DomainError as refusal:
            form.add_error(None, str(refusal))
            return self.form_invalid(form)
        # Shown, not redirected to: a page that could be opened again would have to keep the
        # secret. (admin_view forbids caching.)
        context = self.get_context_data(secret=secret, join=join_to(self.request))
        return self.render_to_response(context)


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """Where a worker finds us."""

    url: str
    nats: str
    nats_is_local: bool
    nats_mints: bool  # the worker gets its credentials from us, once it is approved


def join_to(request: HttpRequest) -> Join:
    # Our own URL may carry the manager's password: everything but that is told.
    ours = urlsplit(settings.CLUSTER.nats_url)
    bare = f"{ours.scheme}://{ours.hostname or '127.0.0.1'}:{ours.port or 4222}"
    nats = settings.CLUSTER.worker_nats_url or bare
    return Join(
        url=request.build_absolute_uri("/").rstrip("/"),
        nats=nats,
        nats_is_local=urlsplit(nats).hostname in HOME,
        nats_mints=credentials.minting(),
    )
