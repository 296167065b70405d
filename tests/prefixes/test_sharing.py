import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from clustermgr.conf import ClusterSettings
from clustermgr.lib.bus import NatsBus
from nodes.models import NodeModel
from nodes.services import replicas
from nodes.wire import PrefixInvalidated, PrefixObserved
from nodes.wire.prefixcache import INVALIDATE, OBSERVE
from scheduling.models import RouteTally
from scheduling.prefixes.chains import Chain, chain_of
from scheduling.prefixes.index import Limits, PrefixIndex, Seat
from scheduling.prefixes.policies import Policy
from scheduling.prefixes.selecting import Load
from scheduling.services import prefixing
from scheduling.services.prefixing import Prefixes
from scheduling.services.prefixsync import Listener
from tests.contract.nats_server import Server
from tests.factories import NOW, make_node, make_replica
from tests.services import until

pytestmark = pytest.mark.django_db(transaction=True)
PROMPT = chain_of("You are a helpful assistant. " * 40, model="llama")
IDLE = Load(chosen=0, least=0, hot=0)
clock = partial(datetime.now, UTC)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path) as server:
        yield server


def seat_of(replica: NodeModel) -> Seat:
    return Seat(replica.pk, replica.node_id, replica.replica_index)


@contextmanager
def process(cluster: ClusterSettings) -> Iterator[Prefixes]:
    """One web process: its own memory, its own connection, its own listener."""
    bus = NatsBus(cluster)
    prefixes = Prefixes(cluster, bus)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    keeping = asyncio.run_coroutine_threadsafe(prefixes.keep(clock=clock), loop)
    try:
        yield prefixes
    finally:
        keeping.cancel()
        asyncio.run_coroutine_threadsafe(_settled(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()
        bus.close()


async def _settled() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*others, return_exceptions=True)


def hot(prefixes: Prefixes, chain: Chain = PROMPT, model: str = "llama") -> UUID | None:
    wish = prefixes.wish_for(model, chain, Policy(), now=datetime.now(UTC))
    return wish.hot if wish else None


def serve(prefixes: Prefixes, seat: Seat, chain: Chain = PROMPT, **changes: Any) -> None:
    given: dict[str, Any] = {"policy": Policy(), "wish": None, "load": IDLE, **changes}
    prefixes.record("llama", chain, seat, now=datetime.now(UTC), **given)


def ready(server: Server, listeners: int) -> Callable[[], bool]:
    def known() -> bool:
        ears = [each.get("subscriptions_list", []) for each in server.connections()]
        return sum(OBSERVE in each and INVALIDATE in each for each in ears) == listeners

    return known


def test_the_same_prompt_goes_to_the_same_replica_from_both_processes(server: Server) -> None:
    first, second = (seat_of(make_replica(make_node(name))) for name in ("gpu-1", "gpu-2"))
    with process(server.settings) as one, process(server.settings) as other:
        until(ready(server, 2))
        serve(one, first)
        until(lambda: hot(other) == first.id)
        assert hot(one) == first.id
        serve(other, second)
        until(lambda: hot(one) == second.id)
        assert hot(other) == second.id


def test_a_replica_that_goes_is_forgotten_everywhere_and_its_neighbour_is_not(
    server: Server,
) -> None:
    node = make_node(max_replicas_per_model=2)
    goes, stays = make_replica(node), make_replica(node, index=1)
    another = chain_of("Another beginning. " * 40, model="llama")
    with process(server.settings) as one, process(server.settings) as other:
        until(ready(server, 2))
        serve(one, seat_of(goes))
        serve(one, seat_of(stays), another)
        until(lambda: hot(other, another) == stays.pk)
        assert hot(other) == goes.pk
        one.forget("llama", node.pk, 0)
        until(lambda: hot(other) is None)
        assert hot(one) is None
        assert hot(one, another) == hot(other, another) == stays.pk


def test_who_forgets_what_it_never_knew_tells_the_others_all_the_same(server: Server) -> None:
    replica = make_replica(make_node())
    bus = NatsBus(server.settings)
    celery = Prefixes(server.settings, bus)
    with process(server.settings) as web:
        until(ready(server, 1))
        serve(web, seat_of(replica))
        celery.forget("llama", replica.node_id)
        until(lambda: hot(web) is None)
    bus.close()


def test_removing_a_replica_tells_everybody(
    server: Server, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.CLUSTER = server.settings
    bus = NatsBus(server.settings)
    monkeypatch.setattr(prefixing, "_PREFIXES", {})
    monkeypatch.setattr(prefixing, "default_bus", lambda: bus)
    replica = make_replica(make_node())
    with process(server.settings) as web:
        until(ready(server, 1))
        serve(web, seat_of(replica))
        replicas.remove(NodeModel.objects.all(), reason="test")
        until(lambda: hot(web) is None)
    bus.close()


def test_a_word_is_said_once_and_nobody_repeats_it(server: Server) -> None:
    replica = make_replica(make_node())
    said: list[bytes] = []
    ear = NatsBus(server.settings)
    with (
        process(server.settings) as one,
        process(server.settings) as other,
        ear.listening("prefixcache.>", said.append),
    ):
        until(ready(server, 2))
        until(lambda: any("prefixcache.>" in c.get("subscriptions_list", []) for c in _all(server)))
        for _ in range(50):
            serve(one, seat_of(replica))
        until(lambda: hot(other) == replica.pk)
        for _ in range(50):
            serve(other, seat_of(replica))
        one.forget("llama", replica.node_id, 0)
        until(lambda: len(said) == 2)
        until(lambda: hot(other) is None)
    ear.close()
    assert PrefixObserved.decode(said[0]).chain == PROMPT
    assert PrefixInvalidated.decode(said[1]).replica == 0


def _all(server: Server) -> list[dict[str, Any]]:
    return server.connections()


def test_without_a_bus_each_remembers_for_itself_and_shares_again_later(server: Server) -> None:
    first, second = (make_replica(make_node(name)) for name in ("gpu-1", "gpu-2"))
    another = chain_of("Another beginning. " * 40, model="llama")
    server.stop()
    with process(server.settings) as one, process(server.settings) as other:
        serve(one, seat_of(first))
        assert hot(one) == first.pk
        server.start()
        until(ready(server, 2))
        serve(one, seat_of(second), another)
        until(lambda: hot(other, another) == second.pk)


def test_a_process_tells_what_it_counted_when_it_ends(server: Server) -> None:
    replica = make_replica(make_node())
    with process(server.settings) as one:
        until(ready(server, 1))
        serve(one, seat_of(replica))
    assert RouteTally.objects.get().picks == 1


def test_switched_off_nothing_is_remembered_counted_or_told(server: Server) -> None:
    replica = make_replica(make_node())
    off = replace(server.settings, prefix_cache=False)
    with process(off) as one:
        policy = one.policy_for(route_policy="prefix_cache")
        assert one.wish_for("llama", PROMPT, policy, now=NOW) is None
        serve(one, seat_of(replica), policy=policy)
        one.forget("llama", replica.node_id)
        assert len(one.index) == 0
    assert server.connections() == []
    assert not RouteTally.objects.exists()


def test_a_shadow_remembers_and_wishes_but_does_not_act() -> None:
    bus = NatsBus(ClusterSettings())
    prefixes = Prefixes(ClusterSettings(), bus)
    policy = prefixes.policy_for(route_policy="prefix_shadow", min_prefix_match=0.9)
    seat = Seat(uuid4(), uuid4(), 0)
    prefixes.index.record("llama", PROMPT, seat, now=NOW.timestamp())
    wish = prefixes.wish_for("llama", PROMPT, policy, now=NOW)
    assert wish is not None
    assert (wish.hot, wish.shadow, wish.share) == (seat.id, True, 1.0)
    assert prefixes.wish_for("llama", (), policy, now=NOW) is None


def test_words_about_strangers_and_nonsense_change_nothing_and_cost_one_statement() -> None:
    node = make_node()
    replica = make_replica(node)
    index = PrefixIndex(Limits())
    listener = Listener(index, origin="me", clock=clock)

    def observed(**changes: Any) -> bytes:
        values = {"model": "llama", "chain": PROMPT, "node_id": str(node.pk), "replica": 0}
        return PrefixObserved(**{**values, **changes}).encode()

    listener.hear(OBSERVE, b"nonsense")
    listener.hear(OBSERVE, observed(origin="me"))
    listener.hear(OBSERVE, observed(node_id="not-a-uuid"))
    listener.hear(OBSERVE, observed(node_id=str(uuid4())))
    listener.hear(OBSERVE, observed(replica=7))
    listener.hear(INVALIDATE, b"{}")
    with CaptureQueriesContext(connection) as seen:
        assert listener.apply(now=NOW) == 0
    assert (len(seen), len(index)) == (1, 0)
    for _ in range(100):
        listener.hear(OBSERVE, observed())
    with CaptureQueriesContext(connection) as seen:
        assert listener.apply(now=NOW) == 100
    match = index.match("llama", PROMPT, now=NOW.timestamp())
    assert match is not None
    assert (len(seen), match.seat.id) == (0, replica.pk)


@pytest.mark.parametrize("replica", [-1, -7])
def test_a_peer_that_names_no_replica_means_all_of_the_node_and_who_comes_later_is_looked_up(
    replica: int,
) -> None:
    node, index = make_node(), PrefixIndex(Limits())
    listener = Listener(index, origin="me", clock=lambda: NOW)
    slots = [make_replica(node, replica_index=number) for number in range(2)]
    first, second = (chain_of(f"prompt {number}", model="llama") for number in range(2))

    def hear(number: int, chain: Chain) -> None:
        said = PrefixObserved(model="llama", chain=chain, node_id=str(node.pk), replica=number)
        listener.hear(OBSERVE, said.encode())

    hear(0, first)
    hear(1, second)
    listener.apply(now=NOW)
    gone = PrefixInvalidated(model="llama", node_id=str(node.pk), replica=replica)
    listener.hear(INVALIDATE, gone.encode())
    listener.apply(now=NOW)
    assert not any(index.match("llama", one, now=NOW.timestamp()) for one in (first, second))
    NodeModel.objects.filter(pk=slots[0].pk).delete()
    born = make_replica(node, replica_index=0)
    hear(0, first)
    listener.apply(now=NOW)
    match = index.match("llama", first, now=NOW.timestamp())
    assert match is not None
    assert match.seat.id == born.pk
