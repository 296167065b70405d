from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from rest_framework.test import APIClient

from clustermgr.lib.errors import NotFound
from nodes.models import ClusterEvent, NodeModel
from nodes.states import ReplicaState
from scheduling.models import RouteLease
from scheduling.routing.asks import Ask
from scheduling.services import complaints, leasing
from scheduling.services.complaints import AT_MOST, Complaint
from scheduling.services.leasing import Terms, Wanted
from tests.factories import NOW, make_node, make_replica

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)


def lease_on(replica: NodeModel) -> UUID:
    others = NodeModel.objects.exclude(pk=replica.pk).values_list("pk", flat=True)
    ask = Ask(model=replica.model_name, holder="tests", ttl=HOUR, excluded=frozenset(others))
    (lease,) = leasing.take([Wanted(ask=ask)], Terms(), now=NOW)
    assert lease is not None
    return lease.id


def complain(replica: NodeModel, what: Complaint, **more: Any) -> NodeModel:
    told = {"by": "gateway", "detail": "", "now": NOW, **more}
    complaints.hear(lease_on(replica), what, **told)
    replica.refresh_from_db()
    return replica


@pytest.mark.parametrize("what", [Complaint.NOT_LOADED, Complaint.MISMATCH])
def test_a_process_that_does_not_have_the_model_is_stopped_and_no_other(
    what: Complaint, queued: list[Any], django_capture_on_commit_callbacks: Any
) -> None:
    useless, other = make_replica(make_node("a")), make_replica(make_node("b"))
    with django_capture_on_commit_callbacks(execute=True):
        complain(useless, what, detail="FAILED_PRECONDITION")
    other.refresh_from_db()
    assert (useless.state, other.state) == (ReplicaState.UNLOADING, ReplicaState.LOADED)
    assert ("scheduling.stop_replica", str(useless.pk)) in queued
    event = ClusterEvent.objects.get(kind="replica.useless")
    assert event.actor == "gateway"
    assert "FAILED_PRECONDITION" in event.reason


def test_a_replica_that_is_not_reached_rests_longer_each_time(queued: list[Any]) -> None:
    replica, now, rests = make_replica(make_node()), NOW, []
    for _ in range(8):
        complain(replica, Complaint.UNREACHABLE, now=now)
        assert replica.ejected_until is not None
        rests.append(replica.ejected_until - now)
        now = replica.ejected_until
    assert [rest.total_seconds() for rest in rests] == [10, 20, 40, 80, 160, 300, 300, 300]
    assert replica.state == ReplicaState.LOADED


def test_only_the_worker_of_a_replica_that_is_not_reached_is_asked_what_it_runs(
    queued: list[Any], django_capture_on_commit_callbacks: Any
) -> None:
    replica = make_replica(make_node("a"))
    make_replica(make_node("b"))
    with django_capture_on_commit_callbacks(execute=True):
        complain(replica, Complaint.UNREACHABLE)
        complain(replica, Complaint.UNREACHABLE)
    assert queued == [("scheduling.look_at_node", str(replica.node_id))]


def test_a_replica_that_behaved_for_a_while_is_forgiven() -> None:
    replica = make_replica(make_node(), ejected_until=NOW, ejections=6)
    complain(replica, Complaint.UNREACHABLE, now=NOW + timedelta(minutes=6))
    assert replica.ejections == 1


def test_an_overloaded_replica_rests_a_moment() -> None:
    replica = complain(make_replica(make_node()), Complaint.OVERLOADED)
    assert replica.ejected_until == NOW + timedelta(seconds=3)


def test_what_many_callers_say_at_once_counts_once() -> None:
    replica = make_replica(make_node())
    leases = [lease_on(replica) for _ in range(5)]
    for lease in leases:
        complaints.hear(lease, Complaint.UNREACHABLE, by="gateway", detail="", now=NOW)
    replica.refresh_from_db()
    assert (replica.ejections, replica.in_flight) == (1, 0)
    assert ClusterEvent.objects.filter(kind="replica.ejected").count() == 1


def test_only_who_holds_a_lease_may_complain() -> None:
    replica = make_replica(make_node())
    lease = lease_on(replica)
    leasing.release([lease])
    for unknown in (lease, uuid4()):
        with pytest.raises(NotFound):
            complaints.hear(unknown, Complaint.NOT_LOADED, by="x", detail="", now=NOW)
    replica.refresh_from_db()
    assert replica.state == ReplicaState.LOADED


def test_a_rest_never_grows_without_bound() -> None:
    assert complaints.rest(10_000, first=timedelta(seconds=10)) == AT_MOST


def test_a_complaint_ends_the_lease_and_brings_another(api: APIClient) -> None:
    bad, good = make_replica(make_node("a")), make_replica(make_node("b"))
    lease = lease_on(bad)
    reply = api.post(f"/api/route/{lease}/failure", {"kind": "unreachable"}, format="json")
    assert reply.status_code == 200
    told = reply.json()
    assert told["replica"] == str(bad.pk)
    assert told["done"] == "rests for 10 s"
    assert told["lease"]["replica"]["id"] == str(good.pk)
    assert str(RouteLease.objects.get().pk) == told["lease"]["lease_id"]


def test_where_there_is_no_other_replica_the_complaint_still_counts(api: APIClient) -> None:
    bad = make_replica(make_node())
    reply = api.post(f"/api/route/{lease_on(bad)}/failure", {"kind": "unreachable"}, format="json")
    assert (reply.status_code, reply.json()["lease"]) == (200, None)


@pytest.mark.parametrize("body", [{}, {"kind": "bored"}])
def test_a_complaint_of_no_known_kind_is_refused(api: APIClient, body: dict[str, str]) -> None:
    reply = api.post(f"/api/route/{uuid4()}/failure", body, format="json")
    assert reply.status_code == 400
