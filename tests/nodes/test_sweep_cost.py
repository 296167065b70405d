from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from nodes.models import BackendNode, ClusterState, NodeModel
from nodes.services import sweeping
from nodes.states import Liveness
from tests.factories import NOW

pytestmark = pytest.mark.django_db

BOUNDARIES = ("SAVEPOINT", "RELEASE SAVEPOINT", "BEGIN", "COMMIT")


def make_fleet(size: int, *, silent: int = 0, back: int = 0) -> None:
    """Many nodes; some fell silent with a replica each, some were offline and beat again."""
    ClusterState.objects.create(last_sweep_at=NOW - timedelta(seconds=15))
    nodes = BackendNode.objects.bulk_create(
        BackendNode(
            name=f"gpu-{number}",
            address="gpu.example:50051",
            approved_at=NOW,
            approved_by="tests",
            liveness=Liveness.OFFLINE if number >= size - back else Liveness.HEALTHY,
            last_heartbeat=NOW - timedelta(seconds=75 if number < silent else 1),
            liveness_changed_at=NOW - timedelta(seconds=300),
            created_at=NOW,
            updated_at=NOW,
        )
        for number in range(size)
    )
    NodeModel.objects.bulk_create(
        NodeModel(node=node, model_name="llama", created_at=NOW, updated_at=NOW)
        for node in nodes[:silent]
    )


def statements() -> list[str]:
    with CaptureQueriesContext(
        connection,
    ) as captured:
        sweeping.sweep(now=NOW)
    return [query["sql"] for query in captured if not query["sql"].startswith(BOUNDARIES)]


def test_a_quiet_sweep_over_five_thousand_nodes_is_three_statements() -> None:
    make_fleet(5000)
    lock, look, remember = statements()
    assert "pg_try_advisory_xact_lock" in lock
    assert look.startswith("SELECT")
    assert remember.startswith('UPDATE "nodes_clusterstate"')


def test_a_mass_silence_is_held_in_four_statements() -> None:
    make_fleet(500, silent=400)
    assert len(statements()) == 4  # and the event


@pytest.mark.parametrize("size", [10, 1000])
def test_a_busy_sweep_costs_the_same_number_of_statements_whatever_the_size(size: int) -> None:
    make_fleet(size, silent=size // 10, back=size // 10)
    assert len(statements()) == 13  # four of them let load jobs and leases forget their rows
