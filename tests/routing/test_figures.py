from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from prometheus_client import REGISTRY
from rest_framework.test import APIClient

from scheduling.models import RouteLease
from tests.factories import make_node, make_replica
from tests.routing.conftest import Caller

pytestmark = pytest.mark.django_db(transaction=True)

Figures = Callable[[], tuple[float, float, float]]


@pytest.fixture
def counted() -> Figures:
    """Leases granted, requests refused and requests timed since the test began."""

    def now() -> tuple[float, float, float]:
        def total(name: str) -> float:
            families = [family for family in REGISTRY.collect() if name.startswith(family.name)]
            return sum(s.value for one in families for s in one.samples if s.name == name)

        return (
            total("clustermgr_leases_total"),
            total("clustermgr_routes_refused_total"),
            total("clustermgr_route_seconds_count"),
        )

    before = now()
    return lambda: tuple(after - was for after, was in zip(now(), before, strict=True))  # type: ignore[return-value]


def test_the_lease_that_follows_a_complaint_is_counted(
    caller: Caller, api: APIClient, counted: Figures, queued: list[Any]
) -> None:
    for name in "ab":
        make_replica(make_node(name))
    _, lease = caller.run(lambda it: it.route())
    path = f"/api/route/{lease['lease_id']}/failure"
    assert api.post(path, {"kind": "unreachable"}, format="json").json()["lease"]
    assert counted() == (2, 0, 1)


def test_who_comes_through_django_is_counted_as_at_the_door(
    api: APIClient, counted: Figures
) -> None:
    make_replica(make_node())
    assert api.post("/api/route", {"model": "llama"}, format="json").status_code == 200
    assert counted() == (1, 0, 1)
    assert api.post("/api/route", {"model": "nobody"}, format="json").status_code == 404
    assert counted() == (1, 1, 1)


def test_only_requests_for_a_replica_count_as_refused(caller: Caller, counted: Figures) -> None:
    caller.run(lambda it: it.ask("POST", f"/api/route/{uuid4()}/renew"))
    caller.run(lambda it: it.ask("POST", "/api/route/release", b"nonsense"))
    assert counted() == (0, 0, 0)
    caller.run(lambda it: it.route("nobody"))
    assert counted() == (0, 1, 0)
    assert not RouteLease.objects.exists()
