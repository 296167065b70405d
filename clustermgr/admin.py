"""The pages of the project's own models: users, groups, API tokens."""

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, User
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html
from unfold.admin import ModelAdmin
from unfold.decorators import display
from unfold.enums import ActionVariant
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from clustermgr import tokens
from clustermgr.lib.admin import ConsoleAdmin, Dialog, ops_action
from clustermgr.models import ApiToken

admin.site.unregister([User, Group])  # Django's own pages do not wear the theme


@admin.register(User)
class UserAdmin(DjangoUserAdmin, ModelAdmin):
    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm


@admin.register(Group)
class GroupAdmin(DjangoGroupAdmin, ModelAdmin):
    pass


class ApiTokenForm(forms.ModelForm):
    by: User

    def clean_user(self) -> User:
        user: User = self.cleaned_data["user"] or self.by
        if not tokens.may_issue(self.by, user):
            raise forms.ValidationError(f"{user} may do things that you may not.")
        return user


@admin.register(ApiToken)
class ApiTokenAdmin(ConsoleAdmin):
    """Tokens are made here, shown once, and revoked here; never edited."""

    list_display = ["name", "prefix", "user", "state", "created_at", "last_used_at", "expires_at"]
    list_select_related = ["user"]
    search_fields = ["name", "prefix", "user__username"]
    form = ApiTokenForm
    fields = ["name", "user", "expires_at"]
    actions_detail = ["revoke"]
    verbs = {"revoke": "clustermgr.change_apitoken"}

    @display(
        description="State", label={"live": "success", "revoked": "danger", "expired": "warning"}
    )
    def state(self, token: ApiToken) -> str:
        if token.revoked_at:
            return "revoked"
        return "expired" if token.expires_at and token.expires_at < timezone.now() else "live"

    def has_add_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("clustermgr.add_apitoken")

    def get_readonly_fields(self, request: HttpRequest, obj: ApiToken | None = None) -> list[str]:
        return self.fields if obj else []

    def get_form(self, request: HttpRequest, obj: ApiToken | None = None, **kwargs: Any) -> Any:
        form = super().get_form(request, obj, **kwargs)
        form.by = request.user
        return form

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        people = User.objects.filter(is_active=True).order_by("username")
        words = "Whose it is, you if empty. It opens what they may do; a program gets its own user."
        kwargs |= {"queryset": people, "required": False}
        return super().formfield_for_foreignkey(db_field, request, help_text=words, **kwargs)

    def save_model(
        self, request: HttpRequest, obj: ApiToken, form: forms.Form, change: Any
    ) -> None:
        if change:
            return
        issued, secret = tokens.issue(
            obj.user,
            name=obj.name,
            expires_at=obj.expires_at,
            now=timezone.now(),
        )
        obj.pk, obj.prefix = issued.pk, issued.prefix
        words = "Copy this token now, it is not shown again: <code>{}</code>"
        self.message_user(request, format_html(words, secret), messages.WARNING)

    @ops_action(
        "Revoke",
        verb="revoke",
        variant=ActionVariant.DANGER,
        dialog=Dialog(
            title="Revoke this token?",
            explain="Scripts that use it are refused from the next request on.",
            submit="Revoke",
        ),
    )
    def revoke(self, request: HttpRequest, token: ApiToken, _: dict[str, Any]) -> str:
        tokens.revoke(token, now=timezone.now())
        return f"Revoked {token.name}."
