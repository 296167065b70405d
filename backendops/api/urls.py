"""LocalAI's paths for backends and operations, and what it lacks."""

from django.urls import URLPattern, path
from rest_framework.views import APIView

from backendops.api import backends, deadletters, history, installed, operations, plain, stream

NODE = "nodes/<str:node_id>/backends"
JOB = "operations/<str:job_id>"


def _at(route: str, view: type[APIView]) -> list[URLPattern]:
    # A trailing slash is accepted and never redirected to or away from, as on the nodes' paths
    return [path(f"{route}/", view.as_view()), path(route, view.as_view())]


api = [
    *_at(NODE, installed.NodeBackendsView),
    *_at(f"{NODE}/install", installed.InstallView),
    *_at(f"{NODE}/upgrade", installed.UpgradeView),
    *_at(f"{NODE}/reinstall", installed.ReinstallView),
    *_at(f"{NODE}/delete", installed.DeleteView),
    *_at(f"{NODE}/stop", installed.StopView),
    *_at("operations", operations.OperationListView),
    *_at("operations/history", history.HistoryView),
    *_at("operations/export", history.ExportView),
    *_at("operations/events", stream.ChangesView),
    *_at("operations/dead-letters", deadletters.DeadLettersView),
    *_at("operations/dead-letters/redrive", deadletters.RedriveView),
    *_at("operations/dead-letters/discard", deadletters.DiscardView),
    *_at(JOB, operations.OperationView),
    *_at(f"{JOB}/ops", operations.OperationOpsView),
    *_at(f"{JOB}/cancel", operations.CancelView),
    *_at(f"{JOB}/pause", operations.PauseView),
    *_at(f"{JOB}/dismiss", operations.DismissView),
    *_at(f"{JOB}/retry", operations.RetryView),
    *_at("backends", backends.CatalogView),
    *_at("backends/install/<str:backend>", backends.InstallEverywhereView),
    *_at("backends/install-external", backends.InstallExternalView),
    *_at("backends/delete/<str:backend>", backends.DeleteEverywhereView),
    *_at("backends/system/delete/<str:backend>", plain.DeleteNowView),
    *_at("backends/upgrade/<str:backend>", backends.UpgradeEverywhereView),
    *_at("backends/upgrade-all", backends.UpgradeAllView),
    *_at("backends/upgrades", backends.UpgradesView),
    *_at("backends/upgrades/check", backends.CheckUpgradesView),
    *_at("backends/job/<str:job_id>", operations.JobView),
]
# The same without /api, as LocalAI's own command line asks for it
without_api = [
    *_at("backends", plain.InstalledEverywhereView),
    *_at("backends/available", plain.AvailableView),
    *_at("backends/known", plain.KnownView),
    *_at("backends/apply", backends.ApplyView),
    *_at("backends/delete/<str:backend>", backends.DeleteAliasView),
    *_at("backends/upgrade/<str:backend>", backends.UpgradeAliasView),
    *_at("backends/upgrades", backends.UpgradesAliasView),
    *_at("backends/upgrades/check", backends.CheckUpgradesAliasView),
    *_at("backends/galleries", backends.GalleriesView),
    *_at("backends/jobs/<str:job_id>", operations.JobAliasView),
]
