"""The node list, as a page and through the API, with 50 and with 1,000 nodes."""

from datetime import UTC, datetime

from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from bench import harness
from bench.fleet import make_nodes
from nodes.models import BackendNode, NodeLabel, NodeModel
from nodes.states import LabelSource, ReplicaState

SMALL, LARGE = 50, 1000
PATHS = {
    "page": "/admin/nodes/backendnode/",
    "API, a page of 50": "/api/nodes?page_size=50",
    "API, everything": "/api/nodes",
}


def run() -> None:
    client = Client(headers={"host": "localhost"})
    client.force_login(User.objects.create_superuser("bench"))
    figures: dict[str, list[tuple[int, float]]] = {case: [] for case in PATHS}
    made = 0
    for size in (SMALL, LARGE):
        _grow(made, size)
        made = size
        for case, path in PATHS.items():
            figures[case].append(_measure(client, path))
    harness.table(
        ("", f"queries, {SMALL}", "ms", f"queries, {LARGE}", "ms", "times the small one"),
        [
            (case, *small, *large, f"{large[1] / small[1]:.2f}x")
            for case, (small, large) in figures.items()
        ],
    )


def _measure(client: Client, path: str) -> tuple[int, float]:
    with CaptureQueriesContext(connection) as captured:
        assert client.get(path).status_code == 200
    return len(captured), harness.milliseconds(lambda: client.get(path))


def _grow(start: int, stop: int) -> None:
    now = datetime.now(UTC)
    nodes = make_nodes(range(start, stop), gpu_vendor="nvidia")
    NodeLabel.objects.bulk_create(
        NodeLabel(node=node, key=key, value="x", source=LabelSource.WORKER)
        for node in nodes
        for key in ("rack", "tier", "site")
    )
    _replicas(nodes, now)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")  # as autovacuum does after such a change


def _replicas(nodes: list[BackendNode], now: datetime) -> None:
    NodeModel.objects.bulk_create(
        NodeModel(
            node=node,
            model_name="llama",
            state=ReplicaState.LOADED,
            in_flight=1,
            created_at=now,
            updated_at=now,
        )
        for node in nodes
    )
