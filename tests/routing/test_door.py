import asyncio
from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection, transaction

from clustermgr import tokens
from clustermgr.lib import fastlane
from clustermgr.lib.offloop import off_loop
from nodes.models import NodeModel
from scheduling.models import RouteLease
from tests.factories import NOW, make_model, make_node, make_replica
from tests.routing.conftest import Caller

pytestmark = pytest.mark.django_db(transaction=True)


def in_flight() -> list[int]:
    return list(NodeModel.objects.order_by("node__name").values_list("in_flight", flat=True))


def test_a_lease_tells_all_that_a_caller_needs(caller: Caller) -> None:
    node = make_node()
    replica = make_replica(node, index=2, config_revision="r7")
    status, told = caller.run(lambda it: it.route(ttl=90))
    assert status == 200
    lease = RouteLease.objects.get()
    assert (lease.expires_at - lease.granted_at).total_seconds() == 90
    assert told.pop("expires_at").startswith(lease.expires_at.strftime("%Y-%m-%dT%H:%M:%S"))
    assert told == {
        "lease_id": str(lease.pk),
        "model": "llama",
        "node": {"id": str(node.pk), "name": node.name},
        "replica": {"id": str(replica.pk), "index": 2},
        "address": replica.address,
        "revision": "r7",
        "how": "plain",
        "why": "The least busy replica that can serve (0 in flight).",
    }
    assert lease.holder == "gateway"
    assert caller.asked_django == 0


def test_giving_back_twice_is_no_mistake(caller: Caller) -> None:
    make_replica(make_node())

    async def story(it: Caller) -> list[Any]:
        _, lease = await it.route()
        path = f"/api/route/{lease['lease_id']}"
        return [await it.ask("DELETE", path) for _ in range(2)]

    assert caller.run(story) == [(200, {"released": True}), (200, {"released": False})]
    assert in_flight() == [0]


def test_a_lease_that_is_named_twice_is_released_once(caller: Caller) -> None:
    make_replica(make_node())

    async def story(it: Caller) -> Any:
        _, lease = await it.route()
        return await it.ask("POST", "/api/route/release", {"leases": [lease["lease_id"]] * 2})

    assert caller.run(story) == (200, {"released": 1})


def test_a_burst_of_callers_is_spread_and_released_together(caller: Caller) -> None:
    for name in "abc":
        make_replica(make_node(name))

    async def story(it: Caller) -> int:
        told = await asyncio.gather(*(it.route() for _ in range(300)))
        counts = await off_loop(in_flight)
        assert counts == [100, 100, 100]
        leases = [lease["lease_id"] for _, lease in told]
        _, answer = await it.ask(
            "POST", "/api/route/release", {"leases": [*leases, leases[0], "no id"]}
        )
        return int(answer["released"])

    assert caller.run(story) == 300
    assert in_flight() == [0, 0, 0]


def test_a_lease_is_renewed_while_it_lives(caller: Caller) -> None:
    make_replica(make_node())

    async def story(it: Caller) -> list[int]:
        _, lease = await it.route(ttl=10)
        path = f"/api/route/{lease['lease_id']}"
        status, told = await it.ask("POST", f"{path}/renew", {"ttl": 100})
        assert told["expires_at"] > lease["expires_at"]
        await it.ask("DELETE", path)
        gone, _ = await it.ask("POST", f"{path}/renew", {})
        return [status, gone]

    assert caller.run(story) == [200, 404]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"{", "not understood"),
        (b"[]", "not understood"),
        (b'{"a":' * 20_000, "nested too deeply"),
        ({}, "model"),
        ({"model": ""}, "model is needed"),
        ({"model": "a\x00b"}, "control characters"),
        ({"model": "llama", "ttl": 0}, "ttl must be from 1"),
        ({"model": "llama", "ttl": 1e9}, "ttl must be from 1"),
        ({"model": "llama", "timeout": -1}, "timeout must be from 0"),
        ({"model": "llama", "session": "x" * 600}, "session is 600 bytes long"),
        ({"model": "llama", "chain": [7, 7]}, "none twice"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_sentence(
    caller: Caller, body: Any, says: str
) -> None:
    status, told = caller.run(lambda it: it.ask("POST", "/api/route", body))
    assert (status, told["code"]) == (400, "invalid_input")
    assert says in told["detail"]


ODD = [
    b"{",
    b"[]",
    b"",
    b"\xff",
    b'{"a":' * 20_000,
    {"model": ""},
    {"model": 5},
    {"model": " llama "},
    {"model": "a\x00b"},
    {"model": "llama", "ttl": 0},
    {"model": "llama", "ttl": "5"},
    {"model": "llama", "ttl": True},
    {"model": "llama", "timeout": -1},
    {"model": "llama", "timeout": 0},
    {"model": "llama", "session": None},
    {"model": "llama", "session": "é" * 300},
    {"model": "llama", "prompt_prefix": "a\x00b"},
    {"model": "llama", "chain": [-1]},
    {"model": "llama", "chain": [2**64]},
    {"model": "llama", "chain": [1] * 65},
    {"model": "llama", "chain": "x"},
    {"model": "llama", "revision": "r0"},
    {"model": "llama", "more": 1},
    {"model": "llama", "prompt_prefix": "x" * 300_000},
]


@pytest.mark.parametrize("path", ["", "/release", f"/{UUID(int=7)}/renew"])
def test_the_door_and_django_behind_it_answer_alike(caller: Caller, path: str) -> None:
    make_model(config_revision="r1")
    make_replica(make_node(), config_revision="r1")

    async def story(it: Caller) -> list[tuple[int, Any]]:
        return [await it.ask("POST", f"/api/route{path}", body) for body in ODD]

    at_the_door = caller.run(story)
    assert caller.asked_django == 0
    caller.door.takes = lambda scope: False  # type: ignore[method-assign]
    behind_it = caller.run(story)
    assert caller.asked_django == len(ODD)
    for body, (status, told), (same, words) in zip(ODD, at_the_door, behind_it, strict=True):
        assert status == same, body
        assert status == 200 or told["detail"] == words["detail"], body


def test_too_much_is_not_read_to_its_end(caller: Caller) -> None:
    status, told = caller.run(lambda it: it.ask("POST", "/api/route", b"x" * 300_000))
    assert (status, told["code"]) == (413, "too_large")


@pytest.mark.parametrize("secret", ["", "cm_nobody"])
def test_without_a_token_nothing_is_leased(caller: Caller, secret: str) -> None:
    make_replica(make_node())
    status, _ = caller.run(
        lambda it: it.ask("POST", "/api/route", {"model": "llama"}, secret=secret)
    )
    assert status == 401
    assert in_flight() == [0]


def test_who_may_not_route_is_refused(caller: Caller) -> None:
    make_replica(make_node())
    caller.user.user_permissions.clear()
    status, told = caller.run(lambda it: it.route())
    assert (status, told["code"]) == (403, "permission_denied")


def test_a_revoked_token_stops_opening_the_door_within_seconds(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_replica(make_node())
    monkeypatch.setattr("scheduling.api.routedoor.CHECK_EVERY", 0.0)

    async def story(it: Caller) -> list[int]:
        first, _ = await it.route()
        await off_loop(tokens.revoke, it.token, now=NOW)
        second, _ = await it.route()
        return [first, second]

    assert caller.run(story) == [200, 401]


def test_a_burst_with_one_token_looks_it_up_once(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_replica(make_node())
    looked_up: list[str] = []
    real = tokens.authenticate

    def authenticate(secret: str, **more: Any) -> Any:
        looked_up.append(secret)
        return real(secret, **more)

    monkeypatch.setattr(tokens, "authenticate", authenticate)

    async def story(it: Caller) -> set[int]:
        return {status for status, _ in await asyncio.gather(*(it.route() for _ in range(20)))}

    assert caller.run(story) == {200}
    assert looked_up == [caller.secret]


def test_a_model_that_nobody_defined_is_not_found(caller: Caller) -> None:
    status, told = caller.run(lambda it: it.route("nobody", timeout=30))
    assert (status, told["code"]) == (404, "not_found")


def test_a_caller_with_an_old_idea_of_the_model_is_told(caller: Caller) -> None:
    make_model(config_revision="r2")
    make_replica(make_node(), config_revision="r2")
    status, told = caller.run(lambda it: it.route(revision="r1", timeout=30))
    assert (status, told["code"]) == (409, "stale_revision")
    assert "r2" in told["detail"]


@pytest.fixture
def impatient() -> Iterator[None]:
    """A database that gives up soon on what it cannot do now."""
    name = connection.ops.quote_name(connection.settings_dict["NAME"])
    fastlane.close()  # connections that are open keep their patience
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER DATABASE {name} SET lock_timeout = '50ms'")
    yield
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER DATABASE {name} RESET lock_timeout")
    fastlane.close()


def test_a_database_that_does_not_answer_is_a_503_and_no_fault_of_the_caller(
    caller: Caller, impatient: None
) -> None:
    make_replica(make_node())
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("LOCK TABLE scheduling_routelease IN ACCESS EXCLUSIVE MODE")
        status, told = caller.run(lambda it: it.route())
    assert (status, told["code"]) == (503, "database_away")
    assert caller.headers["retry-after"] == "5"
    assert caller.run(lambda it: it.route())[0] == 200


def test_nothing_else_under_route_is_the_doors(caller: Caller) -> None:
    async def story(it: Caller) -> list[int]:
        asked = [
            ("GET", "/api/route"),
            ("DELETE", "/api/route/x"),
            ("PUT", f"/api/route/{uuid4()}"),
        ]
        return [(await it.ask(*one))[0] for one in asked]

    assert caller.run(story) == [405, 404, 405]  # nobody may: no matter of permission
    assert caller.asked_django == 3
