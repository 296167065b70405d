from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from nodes.models import BackendNode, ClusterEvent
from scheduling.models import LoadJob, PlacementDecision
from scheduling.services import retention
from scheduling.states import Cause, JobState
from tests.factories import NOW, make_job, make_node, make_replica

pytestmark = pytest.mark.django_db

LATER = NOW + timedelta(days=30)  # what ended NOW is just not old enough
TOO_LATE = LATER + timedelta(microseconds=1)


@pytest.fixture(autouse=True)
def _few(settings: Any) -> None:
    settings.CLUSTER = replace(settings.CLUSTER, keep_loads_per_model=2)


def ended(node: BackendNode, **changes: Any) -> LoadJob:
    over = {"state": JobState.LOADED, "finished_at": NOW, "reservation_ended_at": NOW}
    return make_job(node, **{**over, **changes})


def decided(at: datetime = NOW, model: str = "llama", **changes: Any) -> PlacementDecision:
    told = {"cause": Cause.FLOOR, "summary": "It goes there.", **changes}
    return PlacementDecision.objects.create(at=at, model_name=model, **told)


def fill_up(node: BackendNode) -> None:
    """Enough that is newer: the last two of the model are others."""
    for _ in range(2):
        ended(node, finished_at=TOO_LATE)
        decided(at=TOO_LATE, node=node)


def test_what_was_over_for_longer_than_is_wanted_goes_and_an_event_says_so() -> None:
    node = make_node()
    job = ended(node)
    decision = decided(node=node, job=job)
    fill_up(node)
    assert retention.prune(now=LATER) == 0
    assert not ClusterEvent.objects.exists()
    assert retention.prune(now=TOO_LATE) == 2
    assert not LoadJob.objects.filter(pk=job.pk).exists()
    assert not PlacementDecision.objects.filter(pk=decision.pk).exists()
    event = ClusterEvent.objects.get(kind="history.pruned")
    assert event.after == {"loads": 1, "decisions": 1}
    assert retention.prune(now=TOO_LATE) == 0


def test_the_last_ones_of_each_model_stay_however_old() -> None:
    node = make_node()
    kept = [ended(node, model_name=name).pk for name in ("a", "b", "b")]
    told = [decided(model=name, node=node).pk for name in ("a", "b", "b")]
    ended(node, model_name="c")
    kept += [ended(node, model_name="c").pk for _ in range(2)]
    assert retention.prune(now=NOW + timedelta(days=9999)) == 1
    assert set(LoadJob.objects.values_list("pk", flat=True)) == set(kept)
    assert set(PlacementDecision.objects.values_list("pk", flat=True)) == set(told)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"state": JobState.PENDING, "finished_at": None}, id="is under way"),
        pytest.param({"reservation_ended_at": None}, id="holds memory"),
        pytest.param({"state": JobState.FAILED}, id="the last failure"),
        pytest.param({"died_at": TOO_LATE}, id="died lately"),
    ],
)
def test_a_load_that_still_matters_stays(changes: dict[str, Any]) -> None:
    node = make_node()
    job = ended(node, **changes)
    fill_up(node)
    retention.prune(now=TOO_LATE + timedelta(days=1))
    assert LoadJob.objects.filter(pk=job.pk).exists()


@pytest.mark.parametrize("field", ["replica", "replaces"])
def test_a_load_stays_with_its_replica_and_so_does_the_decision(field: str) -> None:
    node = make_node()
    replica = make_replica(node)
    job = ended(node, **{field: replica})
    decision = decided(node=node, job=job)
    fill_up(node)
    assert retention.prune(now=TOO_LATE) == 0
    replica.delete()
    assert retention.prune(now=TOO_LATE) == 2
    assert not LoadJob.objects.filter(pk=job.pk).exists()
    assert not PlacementDecision.objects.filter(pk=decision.pk).exists()


def test_a_load_stays_as_long_as_a_decision_tells_of_it() -> None:
    node = make_node()
    job = ended(node)
    fill_up(node)
    decided(at=TOO_LATE, node=node, job=job)
    assert retention.prune(now=TOO_LATE) == 0


def test_only_the_last_failure_and_the_last_why_not_outlive_the_others() -> None:
    node = make_node()
    failures = [ended(node, state=JobState.FAILED) for _ in range(3)]
    nowhere = [decided(summary="No room.") for _ in range(3)]
    fill_up(node)
    assert retention.prune(now=TOO_LATE) == 4
    failed = LoadJob.objects.filter(state=JobState.FAILED)
    assert list(failed) == failures[-1:]
    assert list(PlacementDecision.objects.filter(node=None)) == nowhere[-1:]


def test_a_backlog_goes_in_batches_of_the_same_few_statements(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = make_node()
    monkeypatch.setattr(retention, "ROUNDS", 1)
    costs = []
    for number in (3, 12):
        monkeypatch.setattr(retention, "AT_ONCE", number)
        for _ in range(number + 1):
            decided(node=node, job=ended(node))
        fill_up(node)
        with CaptureQueriesContext(connection) as seen:
            assert retention.prune(now=TOO_LATE) == 2 * number
        costs.append(len(seen))
        LoadJob.objects.all().delete()
        PlacementDecision.objects.all().delete()
    assert costs[0] == costs[1] <= 12


@pytest.mark.django_db(transaction=True)
def test_what_somebody_is_just_changing_is_left_to_the_next_round() -> None:
    node = make_node()
    first = ended(node)
    ended(node)
    fill_up(node)

    def elsewhere() -> int:
        try:
            return retention.prune(now=TOO_LATE)
        finally:
            connection.close()

    with transaction.atomic(), ThreadPoolExecutor(1) as other:
        LoadJob.objects.select_for_update().get(pk=first.pk)
        assert other.submit(elsewhere).result() == 1
    assert retention.prune(now=TOO_LATE) == 1
