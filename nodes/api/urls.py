"""Both prefixes of LocalAI: /api/node for workers, /api/nodes for operators.

A trailing slash is accepted and never redirected to or away from: workers treat any redirect
as a broken server.
"""

from django.urls import URLPattern, path
from rest_framework.views import APIView

from nodes.api import access, edits, logs, nodes, worker

NODE = "<str:node_id>"


def _at(route: str, view: type[APIView]) -> list[URLPattern]:
    # The slash first: a label key may hold slashes, and this one is not part of it
    return [path(f"{route}/", view.as_view()), path(route, view.as_view())]


urlpatterns = [
    *_at("node/register", worker.RegisterView),
    *_at(f"node/{NODE}/heartbeat", worker.HeartbeatView),
    *_at(f"node/{NODE}/drain", worker.DrainView),
    *_at(f"node/{NODE}/resume", worker.ResumeView),
    *_at(f"node/{NODE}/deregister", worker.DeregisterView),
    *_at(f"node/{NODE}/models", worker.ModelsView),
    *_at(f"node/{NODE}", worker.NodeView),
    *_at("nodes", nodes.NodeListView),
    *_at("nodes/models", nodes.ServingModelsView),
    *_at(f"nodes/{NODE}", nodes.NodeView),
    *_at(f"nodes/{NODE}/models", nodes.NodeModelsView),
    *_at(f"nodes/{NODE}/approve", nodes.ApproveView),
    *_at(f"nodes/{NODE}/drain", nodes.DrainView),
    *_at(f"nodes/{NODE}/resume", nodes.ResumeView),
    *_at(f"nodes/{NODE}/stop-worker", nodes.StopWorkerView),
    *_at(f"nodes/{NODE}/cordon", nodes.CordonView),
    *_at(f"nodes/{NODE}/uncordon", nodes.UncordonView),
    *_at(f"nodes/{NODE}/release", nodes.ReleaseView),
    *_at(f"nodes/{NODE}/retire", nodes.RetireView),
    *_at(f"nodes/{NODE}/readmit", nodes.ReadmitView),
    *_at(f"nodes/{NODE}/release-token", nodes.ReleaseTokenView),
    *_at(f"nodes/{NODE}/backend-logs", logs.LogIndexView),
    *_at(f"nodes/{NODE}/backend-logs/<path:model_id>", logs.LogView),
    *_at(f"nodes/{NODE}/revoke-credentials", nodes.RevokeCredentialsView),
    *_at(f"nodes/{NODE}/labels", edits.LabelsView),
    *_at(f"nodes/{NODE}/labels/<path:key>", edits.LabelView),
    *_at(f"nodes/{NODE}/taints", edits.TaintsView),
    *_at(f"nodes/{NODE}/max-replicas-per-model", edits.MaxReplicasView),
    *_at(f"nodes/{NODE}/vram-budget", edits.VramBudgetView),
    *_at("cluster", nodes.ClusterView),
    *_at("join-tokens", access.JoinTokensView),
    *_at("join-tokens/<int:token_id>/revoke", access.RevokeTokenView),
    *_at("events", access.EventsView),
    *_at("events/<int:event_id>/acknowledge", access.AcknowledgeView),
]
