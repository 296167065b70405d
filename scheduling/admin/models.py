"""The list of models and the page of one."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.http import require_POST
from unfold.decorators import display

from clustermgr.lib.admin import EmptyHint
from scheduling.admin import (
    asking,
    editing,
    leases,
    live,
    modelpage,
    nodetabs,
    replicas,
    trying,
    whatif,
)
from scheduling.admin.changelist import StandingChangeList
from scheduling.admin.modelverbs import ModelVerbs
from scheduling.models import ModelLoadInfo, ModelSchedulingConfig
from scheduling.presenting import rows

MOST_UNDEFINED = 10


@admin.register(ModelLoadInfo)
class ModelAdmin(ModelVerbs):
    """Rows carry their `row`; see StandingChangeList."""

    list_display = ["state_cell", "name_cell", "backend", "wish_cell", "count_cell", "why_cell"]
    list_display_links = ["name_cell"]
    list_fullwidth = True
    list_before_template = "console/models/before_list.html"
    search_fields = ["model_name", "backend", "concurrency_group"]
    search_help_text = "Model, backend or group"
    ordering = ["model_name"]
    fields = ["model_name"]
    empty_hint = EmptyHint(
        title="No model is defined yet",
        text="A model says which backend loads it, and how; a rule says how many should run.",
        url_name="admin:scheduling_model_new",
        link="Define a model",
        needs="scheduling.add_modelloadinfo",
    )

    def get_changelist(self, request: HttpRequest, **_: Any) -> type[StandingChangeList]:
        return StandingChangeList

    def get_urls(self) -> list[URLPattern]:
        guard = self.admin_site.admin_view
        return [
            path("live/", guard(live.fragment), name="scheduling_live"),
            path("node/<uuid:node_id>/", guard(nodetabs.fragment), name="scheduling_node"),
            path("matches/", guard(live.matches), name="scheduling_matches"),
            path("why/", guard(asking.why), name="scheduling_why"),
            path("what-if/", guard(self._with(whatif.page)), name="scheduling_whatif"),
            path("new/", guard(self._with(editing.new)), name="scheduling_model_new"),
            path("import/", guard(self._with(editing.import_many)), name="scheduling_import"),
            path(
                "edit/",
                guard(self._with(editing.save)),
                name="scheduling_model_save",
            ),
            path(
                "replica/<uuid:replica_id>/<str:verb>/",
                guard(self._with(replicas.page)),
                name="scheduling_replica",
            ),
            path("try/", guard(require_POST(trying.answer)), name="scheduling_try"),
            path(
                "lease/<uuid:lease_id>/end/",
                guard(self._with(leases.end)),
                name="scheduling_lease_end",
            ),
            *super().get_urls(),
        ]

    def _with(self, view: Any) -> Any:
        return lambda request, **named: view(self, request, **named)

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        defined = ModelLoadInfo.objects.values("model_name")
        stray = ModelSchedulingConfig.objects.exclude(model_name__in=defined)
        context = {
            "title": "Models",
            "may_add": self.has_define_permission(request),
            "undefined": stray.values_list("model_name", flat=True)[:MOST_UNDEFINED],
        }
        return super().changelist_view(request, {**context, **(extra_context or {})})  # type: ignore[no-any-return]

    def render_change_form(
        self, request: HttpRequest, context: Any, *args: Any, obj: Any = None, **kwargs: Any
    ) -> HttpResponse:
        context.update(modelpage.context(request, obj))
        return super().render_change_form(request, context, *args, obj=obj, **kwargs)  # type: ignore[no-any-return]

    @display(description="State")
    def state_cell(self, model: Any) -> SafeString:
        return rows.cell("state", model.row)

    @display(description="Model", ordering="model_name")
    def name_cell(self, model: ModelLoadInfo) -> SafeString:
        return format_html('<span class="cm-name">{}</span>', model.model_name)

    @display(description="Wanted")
    def wish_cell(self, model: Any) -> SafeString:
        return format_html('<span class="cm-nowrap">{}</span>', model.row.wish)

    @display(description="Running")
    def count_cell(self, model: Any) -> SafeString:
        return rows.cell("count", model.row)

    @display(description="Why not")
    def why_cell(self, model: Any) -> SafeString:
        return rows.cell("why", model.row)
