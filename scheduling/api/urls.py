"""LocalAI's paths for rules and loads, and those of models.

They come before the paths of nodes: `nodes/scheduling` would read there as a node of that name.
"""

from django.urls import URLPattern, path
from rest_framework.views import APIView

from scheduling.api import models, planning, routes, rules, verbs, watching

NODE = "nodes/<str:node_id>/models"
MODEL = "models/<path:name>"


def _at(route: str, view: type[APIView]) -> list[URLPattern]:
    # The slash first: a model's name may hold slashes, and this one is not part of it
    return [path(f"{route}/", view.as_view()), path(route, view.as_view())]


urlpatterns = [
    *_at("nodes/scheduling", rules.RulesView),
    *_at("nodes/scheduling/<path:model_name>", rules.RuleView),
    *_at("models", models.ModelsView),
    *_at("models/import", models.ImportView),
    *_at(f"{MODEL}/replicas", watching.ReplicasView),
    *_at(f"{MODEL}/jobs", watching.ModelJobsView),
    *_at(f"{MODEL}/decisions", watching.DecisionsView),
    *_at(f"{MODEL}/load-status", watching.LoadStatusView),
    *_at(f"{MODEL}/load", verbs.LoadView),
    *_at(f"{MODEL}/unload", verbs.UnloadView),
    *_at(f"{MODEL}/move", verbs.MoveView),
    *_at(f"{MODEL}/why", verbs.WhyView),
    *_at(MODEL, models.ModelView),
    *_at(f"{NODE}/unload", verbs.UnloadFromNodeView),
    *_at(f"{NODE}/delete", verbs.DeleteFromNodeView),
    *_at("scheduling/plan", planning.PlanView),
    *_at("scheduling/why", planning.WhyView),
    *_at("scheduling/jobs", watching.JobsView),
    *_at("scheduling/capacity", watching.CapacityView),
    *_at("route", routes.RouteView),
    *_at("route/release", routes.ReleaseView),
    *_at("route/<str:lease_id>", routes.LeaseView),
    *_at("route/<str:lease_id>/renew", routes.RenewView),
    *_at("route/<str:lease_id>/failure", routes.FailureView),
]
