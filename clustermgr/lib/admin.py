"""What every admin page of ours shares: safe actions, refusals as sentences."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from typing import Any, ClassVar, TypeVar
from urllib.parse import urlsplit

from django import forms
from django.contrib import messages
from django.contrib.admin.utils import unquote
from django.db.models import Model
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from unfold.admin import ModelAdmin
from unfold.decorators import action
from unfold.enums import ActionVariant
from unfold.forms import BaseDialogForm
from unfold.views import ChangeList

from clustermgr.lib.errors import DomainError

Row = TypeVar("Row", bound=Model)
# What the action did, as a sentence for the operator
Verb = Callable[[Any, HttpRequest, Any, dict[str, Any]], str]


class ConsoleChangeList(ChangeList):
    """Without a filter all results are shown; the theme would offer to "show all" again."""

    may_follow_hint = False

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        hint: EmptyHint | None = self.model_admin.empty_hint
        if hint and hint.url_name:
            self.may_follow_hint = not hint.needs or request.user.has_perm(hint.needs)
        if not self.query and not self.has_active_filters:
            self.full_result_count = self.result_count


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptyHint:
    """What an empty list says instead of "No results found"."""

    title: str
    text: str = ""
    url_name: str = ""
    link: str = ""
    needs: str = ""  # the permission without which the link leads nowhere


class ConsoleAdmin(ModelAdmin):
    """Facts are read; change happens through actions. Adding and deleting must be asked for."""

    list_per_page = 50
    list_max_show_all = 50
    show_full_result_count = False
    empty_hint: ClassVar[EmptyHint | None] = None
    # verb -> the permission it needs; each becomes the `has_<verb>_permission` the theme asks
    # for. (It takes dotted names too, but then queries the database at every system check.)
    verbs: ClassVar[dict[str, str]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for verb, permission in cls.verbs.items():
            setattr(cls, f"has_{verb}_permission", _needs(permission))

    def get_changelist(self, request: HttpRequest, **_: Any) -> type[ConsoleChangeList]:
        return ConsoleChangeList

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def offers(self, action_name: str, row: Any) -> bool:
        """Whether a button makes sense now. Never a permission: who comes too late with an old
        page gets the service's sentence, not a bare 403."""
        return True

    def get_actions_detail(self, request: HttpRequest, object_id: Any) -> list[Any]:
        allowed = super().get_actions_detail(request, object_id)
        row = self.get_object(request, unquote(str(object_id))) if allowed else None
        if row is None:
            return []
        return [a for a in allowed if self.offers(a.method.original_function_name, row)]


class ReadOnlyAdmin(ConsoleAdmin):
    """Pages without a form: what changes, changes through a service."""

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


def _needs(permission: str) -> Callable[..., bool]:
    def has(self: Any, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm(permission)

    return has


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialog:
    """What the operator reads before a mutation, and may have to fill in."""

    title: str
    explain: str
    submit: str
    leave: str = "Back"
    form: type[forms.Form] = BaseDialogForm


def ops_action(
    description: str,
    *,
    verb: str,
    dialog: Dialog,
    variant: ActionVariant = ActionVariant.DEFAULT,
    icon: str | None = None,
    leads_to: str = "",
) -> Callable[[Verb], Any]:
    """A mutation of one object: a dialog, then a POST with CSRF, a permission, a sentence.

    The theme's bare `@action` is a plain link that mutates on GET and asks nobody; this is
    the only way our pages change anything. The wrapped verb returns what it did. `leads_to` is
    where one lands when it is done, for verbs after which the page itself is gone.
    """

    def decorate(perform_verb: Verb) -> Any:
        @action(
            description=description,
            permissions=[verb],
            icon=icon,
            variant=variant,
            dialog={
                "title": dialog.title,
                "description": dialog.explain,
                "form_class": dialog.form,
                "form_submit_text": dialog.submit,
                "leave": dialog.leave,  # for our template
            },
        )
        @wraps(perform_verb)
        def perform(
            admin: Any, request: HttpRequest, form: forms.Form, object_id: str
        ) -> HttpResponse:
            row = admin.get_object(request, unquote(str(object_id)))  # names may hold slashes
            if row is None:
                raise Http404
            done = tell(
                admin, request, row, lambda: perform_verb(admin, request, row, form.cleaned_data)
            )
            page = reverse(leads_to) if done and leads_to else _page_of(request)
            # The dialog is an htmx request: only this header makes the page itself move on.
            return HttpResponse(headers={"HX-Redirect": page})

        return perform

    return decorate


def _page_of(request: HttpRequest) -> str:
    """The page the dialog was opened on; its path only, so that no header can send us away."""
    page = urlsplit(request.headers.get("HX-Current-URL", ""))
    return f"{page.path or reverse('admin:index')}{'?' if page.query else ''}{page.query}"


def run_each(
    admin: Any,
    request: HttpRequest,
    rows: Iterable[Row],
    service: Callable[[Row], object],
    *,
    done: str,
) -> None:
    """Call a service for each selected row; one refusal neither stops nor hides the others."""
    succeeded = 0
    for row in rows:
        try:
            service(row)
        except DomainError as refusal:
            admin.message_user(request, str(refusal), messages.WARNING)
        else:
            admin.log_change(request, row, done)
            succeeded += 1
    if succeeded:
        admin.message_user(request, f"{done}: {succeeded}.", messages.SUCCESS)


def tell(admin: Any, request: HttpRequest, row: Model, act: Callable[[], str]) -> bool:
    """Do it, and say in a sentence what was done or why it was refused; whether it was done."""
    try:
        sentence = act()
    except DomainError as refusal:
        admin.message_user(request, str(refusal), messages.ERROR)
        return False
    admin.log_change(request, row, sentence)
    admin.message_user(request, sentence, messages.SUCCESS)
    return True
