"""The list of scheduling rules and the page of one; a rule may be there before its model."""

from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.utils import quote
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.http import require_POST
from unfold.decorators import display

from clustermgr.lib.admin import EmptyHint, ReadOnlyAdmin
from clustermgr.lib.errors import DomainError
from scheduling.admin.changelist import StandingChangeList
from scheduling.admin.editing import page_of
from scheduling.models import ModelLoadInfo, ModelSchedulingConfig
from scheduling.presenting import rows, ruleform, words
from scheduling.services import policies


@admin.register(ModelSchedulingConfig)
class RuleAdmin(ReadOnlyAdmin):
    """Rows carry their `row`; see StandingChangeList."""

    verbs = {"rule": "scheduling.change_modelschedulingconfig"}
    list_display = [
        *("state_cell", "name_cell", "mode_cell", "where_cell"),
        *("wish_cell", "count_cell", "why_cell"),
    ]
    list_display_links = ["name_cell"]
    list_fullwidth = True
    list_before_template = "console/models/before_rules.html"
    search_fields = ["model_name", "selector"]
    search_help_text = "Model or selector"
    ordering = ["model_name"]
    fields = ["model_name"]
    empty_hint = EmptyHint(
        title="No rule says what should run",
        text="A rule keeps a number of replicas of a model running on the nodes it selects.",
        url_name="admin:scheduling_rule_new",
        link="Make a rule",
        needs="scheduling.change_modelschedulingconfig",
    )

    def get_changelist(self, request: HttpRequest, **_: Any) -> type[StandingChangeList]:
        return StandingChangeList

    def get_urls(self) -> list[URLPattern]:
        guard = self.admin_site.admin_view
        return [
            path("new/", guard(self.new), name="scheduling_rule_new"),
            path("save/", guard(self.save), name="scheduling_rule_save"),
            path("remove/", guard(require_POST(self.remove)), name="scheduling_rule_remove"),
            *super().get_urls(),
        ]

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        context = {"title": "Scheduling rules", "may_rule": self.has_rule_permission(request)}
        return super().changelist_view(request, {**context, **(extra_context or {})})  # type: ignore[no-any-return]

    def render_change_form(
        self, request: HttpRequest, context: Any, *args: Any, obj: Any = None, **kwargs: Any
    ) -> HttpResponse:
        [row] = rows.rows([obj.model_name], request=request, now=timezone.now())
        context.update(ruleform.context(obj.model_name, obj))
        context.update(
            row=row,
            title=f"Rule of {obj.model_name}",
            cells={name: rows.cell(name, row) for name in rows.LIVE},
            may_rule=self.has_rule_permission(request),
        )
        return super().render_change_form(request, context, *args, obj=obj, **kwargs)  # type: ignore[no-any-return]

    def new(self, request: HttpRequest) -> HttpResponse:
        if not self.has_rule_permission(request):
            raise PermissionDenied
        name = request.GET.get("model", "").replace("\x00", "")
        return self._form(request, "Make a rule", **ruleform.context(name, None))

    def _form(self, request: HttpRequest, title: str, **filled: Any) -> HttpResponse:
        known = ModelLoadInfo.objects.values_list("model_name", flat=True)
        context = {
            **self.admin_site.each_context(request),
            "title": title,
            "opts": self.model._meta,
            "known": known[:500],
            "may_rule": True,
            "back": reverse("admin:scheduling_modelschedulingconfig_changelist"),
            **filled,
        }
        return TemplateResponse(request, "console/models/new_rule.html", context)

    def save(self, request: HttpRequest) -> HttpResponse:
        if not self.has_rule_permission(request):
            raise PermissionDenied
        if request.method != "POST":  # a reload of what a refusal came back on
            return HttpResponseRedirect(_back(""))
        name, version = request.POST.get("model_name", "").strip(), request.POST.get("version", "")
        try:
            rule = policies.put(
                ruleform.read(request.POST, model_name=name),
                by=request.user.get_username(),
                now=timezone.now(),
                expected_version=int(version)
                if version.isdecimal() and len(version) < 19
                else None,
            )
        except DomainError as refusal:
            filled = ruleform.again(request.POST, refusal)
            return self._form(request, f"Rule of {name}", **filled, back=_back(name))
        wish = words.wish(rule, desired=rule.min_replicas)
        self.message_user(request, f"The rule of {name} is saved: {wish}.", messages.SUCCESS)
        return HttpResponseRedirect(_back(name))

    def remove(self, request: HttpRequest) -> HttpResponse:
        if not self.has_rule_permission(request):
            raise PermissionDenied
        name = request.POST.get("model_name", "")
        policies.delete(name, by=request.user.get_username(), now=timezone.now())
        self.message_user(
            request, f"{name} has no rule any more; what runs stays.", messages.SUCCESS
        )
        return HttpResponseRedirect(_back(name))

    @display(description="State")
    def state_cell(self, rule: Any) -> SafeString:
        return rows.cell("state", rule.row)

    @display(description="Model", ordering="model_name")
    def name_cell(self, rule: Any) -> SafeString:
        missing = "" if rule.row.standing.model else " (not defined)"
        return format_html('<span class="cm-name">{}</span>{}', rule.model_name, missing)

    @display(description="Mode")
    def mode_cell(self, rule: ModelSchedulingConfig) -> SafeString:
        pinned = SafeString(' <span class="cm-chip">pinned</span>') if rule.pinned else ""
        return format_html('<span class="cm-chip">{}</span>{}', words.mode(rule), pinned)

    @display(description="Where")
    def where_cell(self, rule: Any) -> SafeString:
        return format_html(
            '<span class="cm-mono">{}</span><span class="cm-sub cm-nowrap">{}</span>',
            rule.selector or "anywhere",
            words.matching(rule.row.standing.matching or 0),
        )

    @display(description="Wanted")
    def wish_cell(self, rule: Any) -> SafeString:
        return format_html('<span class="cm-nowrap">{}</span>', rule.row.wish)

    @display(description="Running")
    def count_cell(self, rule: Any) -> SafeString:
        return rows.cell("count", rule.row)

    @display(description="Why not")
    def why_cell(self, rule: Any) -> SafeString:
        return rows.cell("why", rule.row)


def _back(name: str) -> str:
    """To the page the form stood on: the model's, the rule's, or the list."""
    clean = name.replace("\x00", "")
    if ModelLoadInfo.objects.filter(pk=clean).exists():
        return page_of(clean, "rule")
    rule = ModelSchedulingConfig.objects.filter(model_name=clean).first()
    if rule is not None:
        return reverse("admin:scheduling_modelschedulingconfig_change", args=[quote(str(rule.pk))])
    return reverse("admin:scheduling_modelschedulingconfig_changelist")
