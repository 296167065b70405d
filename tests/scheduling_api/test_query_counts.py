from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from nodes.models import NodeModel
from scheduling.models import LoadJob, ModelLoadInfo, ModelSchedulingConfig, PlacementDecision
from scheduling.states import Cause
from tests.api.clients import Caller
from tests.factories import NOW, make_node

PATHS = [
    "/api/models",
    "/api/nodes/scheduling",
    "/api/scheduling/jobs",
    "/api/scheduling/capacity?label=tier",
    "/api/models/m0",
    "/api/models/m0/replicas",
]
PAGES = [
    "admin:scheduling_modelloadinfo_changelist",
    "admin:scheduling_modelschedulingconfig_changelist",
]


def grow(start: int, stop: int) -> None:
    """Models with a rule, a replica, a load and a refusal each."""
    node = make_node(f"n{start}")
    names = [f"m{number}" for number in range(start, stop)]
    dates = {"created_at": NOW, "updated_at": NOW, "updated_by": "tests"}
    ModelLoadInfo.objects.bulk_create(
        ModelLoadInfo(
            model_name=name, backend="x", config_revision="r", created_by="tests", **dates
        )
        for name in names
    )
    ModelSchedulingConfig.objects.bulk_create(
        ModelSchedulingConfig(model_name=name, min_replicas=5, selector="a!=b", **dates)
        for name in names
    )
    NodeModel.objects.bulk_create(
        NodeModel(node=node, model_name=name, created_at=NOW, updated_at=NOW, state="loaded")
        for name in names
    )
    LoadJob.objects.bulk_create(
        LoadJob(
            node=node,
            model_name=name,
            replica_index=1,
            cause=Cause.FLOOR,
            created_at=NOW,
            changed_at=NOW,
            due_at=NOW,
        )
        for name in names
    )
    PlacementDecision.objects.bulk_create(
        PlacementDecision(at=NOW, model_name=name, cause=Cause.FLOOR, summary="no")
        for name in names
    )


def counts(root: Caller, browser: Client) -> dict[str, int]:
    found = {}
    for path in PATHS:
        with CaptureQueriesContext(connection) as captured:
            assert root.get(path).status_code == 200
        found[path] = len(captured)
    for name in PAGES:
        with CaptureQueriesContext(connection) as captured:
            assert browser.get(reverse(name)).status_code == 200
        found[name] = len(captured)
    return found


def test_five_hundred_models_cost_as_many_queries_as_ten(
    root: Caller, admin_client: Client
) -> None:
    grow(0, 10)
    counts(root, admin_client)  # a token's "last used" is written once a minute
    few = counts(root, admin_client)
    grow(10, 500)
    assert counts(root, admin_client) == few
    assert max(few.values()) <= 20
