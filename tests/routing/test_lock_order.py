import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction
from django.db.models import QuerySet

from nodes.backendrpc import Health
from nodes.models import BackendNode, NodeModel
from nodes.services import replicas
from nodes.states import ReplicaState
from scheduling import statements
from scheduling.definitions import Definition
from scheduling.models import LoadJob, ModelLoadInfo
from scheduling.planning.plans import Rolled, Unload
from scheduling.services import defining, intents, leasing, observing, stopping
from scheduling.services.leasing import Terms, Wanted
from scheduling.states import Cause, JobState
from tests.factories import NOW, make_job, make_model, make_node, make_replica
from tests.locks import waiting
from tests.routing.test_leases import ask
from tests.services import until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("queued")]

FIRST, SECOND = UUID(int=1), UUID(int=2)
OLD = Definition.of({"name": "llama", "backend": "reference", "options": {"Threads": 1}})


def edit() -> None:
    defining.edit("llama", OLD.changed({"options": {"Threads": 2}}), by="tests", now=NOW)


def resume() -> None:
    replicas.restore(BackendNode.objects.get(), now=NOW)


def confirm() -> None:
    observing.note({Health.ALIVE: [SECOND], Health.BUSY: [FIRST], Health.GONE: []}, now=NOW)


def miss() -> None:
    observing.note({Health.ALIVE: [], Health.BUSY: [], Health.GONE: [SECOND, FIRST]}, now=NOW)


def stop() -> None:
    stopping.stop_all("llama", by="tests", now=NOW, force=True)


@transaction.atomic
def roll() -> None:
    """A tick that ends a rolling edit, which changes one, and retires another besides."""
    model = ModelLoadInfo.objects.get()
    node = BackendNode.objects.get()
    leaver = Unload(
        replica=SECOND,
        model="llama",
        node=node.pk,
        node_name=node.name,
        index=0,
        cause=Cause.REPLACE,
        reason="",
    )
    over = Rolled(model="llama", revision=model.config_revision)
    intents.let_go((), retire=[leaver], rolled=[over], by="tests", now=NOW)


@transaction.atomic  # not in the fast lane, which would try again and hide a deadlock
def release(leases: list[UUID]) -> None:
    leasing.release(leases)


def hold(row: QuerySet[Any], held: threading.Event, free: threading.Event) -> None:
    with transaction.atomic():
        row.select_for_update().get()
        held.set()
        assert free.wait(60)


def on_its_own_connection(work: Callable[[], object]) -> None:
    try:
        work()
    finally:
        connection.close()


def in_a_line(
    row: QuerySet[Any], first: Callable[[], object], second: Callable[[], object]
) -> None:
    """Let both wait for a row that somebody holds, one behind the other; then let them go."""
    held, free = threading.Event(), threading.Event()
    with ThreadPoolExecutor(3) as pool:
        works = [pool.submit(on_its_own_connection, partial(hold, row, held, free))]
        assert held.wait(60)
        works.append(pool.submit(on_its_own_connection, first))
        until(lambda: waiting() >= 1)
        works.append(pool.submit(on_its_own_connection, second))
        until(lambda: waiting() >= 2)
        free.set()
        for done in works:
            done.result()


@pytest.mark.parametrize("change", [edit, resume, confirm, miss, roll, stop])
def test_whoever_changes_many_replicas_locks_them_in_the_order_in_which_requests_do(
    change: Callable[[], None],
) -> None:
    model, node = defining.create(OLD, by="tests", now=NOW), make_node(id=FIRST)
    other = make_node("gpu-2", id=SECOND) if change is stop else node
    # The table has them the other way round: that is how a plain UPDATE would find them, and a
    # walk from node to node
    for index, (pk, at) in enumerate(((SECOND, node), (FIRST, other))):
        make_replica(at, index=index, id=pk, config_revision=model.config_revision)
    taken = leasing.take([Wanted(ask=ask()), Wanted(ask=ask())], Terms(), now=NOW)
    leases = [lease.id for lease in taken if lease is not None]
    if change is resume:
        NodeModel.objects.update(withdrawn_at=NOW)
    if change is roll:
        ModelLoadInfo.objects.update(rolling_since=NOW, rolling_replicas=1)
        NodeModel.objects.filter(pk=FIRST).update(config_revision="before")
    in_a_line(NodeModel.objects.filter(pk=FIRST), partial(release, leases), change)
    assert set(NodeModel.objects.values_list("in_flight", flat=True)) == {0}


def renew(jobs: list[LoadJob]) -> None:
    with connection.cursor() as cursor:
        ids, fences = [job.pk for job in jobs], [job.fence for job in jobs]
        cursor.execute(statements.RENEW, {"until": NOW, "ids": ids, "fences": fences})


def test_whoever_ends_loads_and_whoever_renews_their_leases_lock_them_in_one_order() -> None:
    make_model()
    node = make_node(max_replicas_per_model=2)
    jobs = []
    for index in range(2):
        row = make_replica(node, index=index, state=ReplicaState.LOADING)
        held: dict[str, Any] = {"due_at": None, "lease_until": NOW, "started_at": NOW}
        jobs.append(make_job(node, index=index, replica=row, state=JobState.LOADING, **held))
    first = LoadJob.objects.filter(pk=jobs[0].pk)
    in_a_line(first, stop, partial(renew, jobs[::-1]))
    assert set(LoadJob.objects.values_list("state", flat=True)) == {JobState.CANCELLED}


def test_an_import_of_many_models_locks_all_their_replicas_in_that_order_too() -> None:
    node = make_node()
    for name, pk in (("a", SECOND), ("b", FIRST)):
        definition = Definition.of({"name": name, "backend": "reference"})
        model = defining.create(definition, by="tests", now=NOW)
        make_replica(node, name, id=pk, config_revision=model.config_revision)
    documents = [
        {"name": name, "backend": "reference", "options": {"Threads": 2}} for name in ("a", "b")
    ]
    bring = partial(defining.import_all, documents, by="tests", now=NOW)
    in_a_line(NodeModel.objects.filter(pk=FIRST), confirm, bring)
    assert not NodeModel.objects.filter(outdated_at=None).exists()
