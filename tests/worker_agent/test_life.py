import asyncio
import json
import time
from pathlib import Path

import nats
import pytest
from django.conf import settings

from tests.contract.nats_server import Server
from tests.worker_agent.agents import living
from tests.worker_agent.scripted_manager import scripted_manager
from tests.worker_machine.loops import eventually, in_loop
from worker import joining
from worker.fleet.simulated import Nature
from worker.link import Address
from worker.wire import subjects


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits two seconds here."""
    monkeypatch.setattr(joining, "SHORTEST", 0.02)
    monkeypatch.setattr(joining, "RETIRED", 0.02)


async def beats_of_another(count: int) -> None:
    """The time in which another node with the same pace beats so often."""
    async with scripted_manager() as manager, living(manager.url, name="clock"):
        await eventually(lambda: manager.verbs().count("heartbeat") >= count)


@in_loop
async def test_a_node_registers_with_all_that_it_is() -> None:
    async with scripted_manager() as manager, living(manager.url):
        await eventually(lambda: "register" in manager.verbs())
    [body] = manager.bodies("register")
    assert body == {
        "name": "gpu-a",
        "address": "10.0.0.7:50051",
        "http_address": "10.0.0.7:50050",
        "boot_id": "boot-1",
        "token": "s3cret",
        "gpu_vendor": "nvidia",
        "capability": "nvidia-cuda-12",
        "max_replicas_per_model": 2,
        "labels": {"tier": "fast", "node.replica-slots": "2"},
        "total_vram": 24 * 2**30,
        "available_vram": 20 * 2**30,
        "total_ram": 64 * 2**30,
        "available_ram": 48 * 2**30,
        "total_disk": 1000 * 2**30,
        "available_disk": 800 * 2**30,
    }
    assert manager.tokens == {"Bearer s3cret"}


@in_loop
async def test_it_beats_with_what_is_free_and_obeys_over_nats() -> None:
    async with scripted_manager() as manager, living(manager.url) as agent:
        await eventually(lambda: "heartbeat" in manager.verbs())
        client = await nats.connect(settings.CLUSTER.nats_url)
        subject = subjects.of(manager.node_id, subjects.INSTALL)
        reply = await client.request(subject, b'{"backend":"llama-cpp","model_id":"m"}', timeout=60)
        await client.close()
        assert json.loads(reply.data) == {"success": True, "address": "10.0.0.7:50051"}
        assert [one.key for one in agent.desk.machine.processes.running()] == ["m#0"]
    assert manager.bodies("heartbeat")[0] == {
        "available_vram": 20 * 2**30,
        "available_ram": 48 * 2**30,
        "total_disk": 1000 * 2**30,
        "available_disk": 800 * 2**30,
    }


@in_loop
async def test_it_tries_until_the_manager_takes_it() -> None:
    async with scripted_manager() as manager:
        manager.answers("register", 503, {"error": {"message": "later"}})
        manager.then("register", 307, None, Location="http://127.0.0.1:9/elsewhere")
        manager.then("register", 401, {"error": "invalid registration token"})
        manager.then("register", 410, {"error": {"message": "gpu-a was retired"}})
        manager.then("register", 201, ["not", "an", "object"])
        manager.then("register", 201, {"id": manager.node_id, "status": "healthy"})
        async with living(manager.url):
            await eventually(lambda: "heartbeat" in manager.verbs())
        assert manager.verbs().count("register") == 6


@in_loop
async def test_it_waits_for_as_long_as_it_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async with scripted_manager() as manager:
        manager.answers("register", 429, {"error": "slow down"}, Retry_After="0.5")
        manager.then("register", 201, {"id": manager.node_id, "status": "healthy"})
        began = time.monotonic()
        async with living(manager.url):
            await eventually(lambda: manager.verbs().count("register") == 2)
        assert time.monotonic() - began > 0.4
    assert "not registered" in caplog.text


@in_loop
async def test_one_that_needs_credentials_waits_for_approval() -> None:
    async with scripted_manager() as manager:
        manager.answers("register", 201, {"id": manager.node_id, "status": "pending"})
        manager.then("register", 201, {"id": manager.node_id, "status": "pending"})
        manager.then("register", 201, {"id": manager.node_id, "status": "healthy"})
        async with living(
            manager.url, needs_credentials=True, nats=Address(url="nats://127.0.0.1:9")
        ) as agent:
            await eventually(lambda: manager.verbs().count("register") >= 4)
            assert agent.why_not_ready() == "not registered yet"


@pytest.mark.parametrize("status", [404, 410])
@in_loop
async def test_a_manager_that_forgot_the_node_is_told_again_and_may_name_it_anew(
    status: int,
) -> None:
    async with scripted_manager() as manager:
        manager.then("register", 201, {"id": "another-id", "status": "healthy"})
        manager.answers("heartbeat", status, {"error": {"message": "unknown"}})
        manager.then("heartbeat", 200, {})
        async with living(manager.url) as agent:
            await eventually(lambda: manager.verbs().count("heartbeat") >= 2)
            assert agent.known is not None
            assert agent.known.id == "another-id"
            client = await nats.connect(settings.CLUSTER.nats_url)
            await client.request(subjects.of("another-id", subjects.LIST_BACKENDS), b"", timeout=60)
            await client.close()


@pytest.mark.parametrize("status", [401, 403, 429, 500])
@in_loop
async def test_other_refusals_of_a_beat_change_nothing(status: int) -> None:
    async with scripted_manager() as manager:
        manager.answers("heartbeat", status, {"error": "no"})
        async with living(manager.url):
            await eventually(lambda: manager.verbs().count("heartbeat") >= 3)
        assert manager.verbs().count("register") == 1


@in_loop
async def test_the_manager_sets_the_pace() -> None:
    async with scripted_manager() as manager:
        manager.answers("heartbeat", 200, {"heartbeat_interval": 60})
        async with living(manager.url):
            await eventually(lambda: "heartbeat" in manager.verbs())
            await beats_of_another(5)
        assert manager.verbs().count("heartbeat") == 1


@in_loop
async def test_it_does_not_beat_while_nobody_could_reach_it(tmp_path: Path) -> None:
    with Server(tmp_path) as server:
        async with (
            scripted_manager() as manager,
            living(manager.url, nats=Address(url=server.url)) as agent,
        ):
            await eventually(lambda: "heartbeat" in manager.verbs())
            server.stop()
            await eventually(lambda: bool(agent.why_not_ready()))
            await beats_of_another(1)  # one may have been under way
            before = len(manager.heard)
            await beats_of_another(5)
            assert len(manager.heard) == before
            server.start()
            await eventually(lambda: len(manager.heard) > before)


@in_loop
async def test_an_answer_leaves_by_the_connection_that_is_up(tmp_path: Path) -> None:
    """The server restarts while an install is under way."""
    with Server(tmp_path) as server:
        async with (
            scripted_manager() as manager,
            living(
                manager.url,
                nats=Address(url=server.url),
                nature=Nature(link_speed=1000, backend_size=1000),
            ) as agent,
        ):
            await eventually(lambda: agent.why_not_ready() == "")
            # Back before the worker is, however long the server takes: nobody keeps answers
            patient = {"reconnect_time_wait": 0.02, "max_reconnect_attempts": -1}
            client = await nats.connect(**Address(url=server.url).options(None) | patient)
            answers = await client.subscribe("answers")
            request = b'{"backend":"llama-cpp","op_id":"op-1"}'
            install = subjects.of(manager.node_id, subjects.INSTALL)
            await client.publish(install, request, reply="answers")
            await eventually(lambda: agent.desk.operations.find("op-1") is not None)
            server.stop()
            await eventually(lambda: agent.desk.operations.find("op-1") is None)
            server.start()
            answer = await answers.next_msg(timeout=60)
            assert b'"success":true' in answer.data
            await client.close()


@in_loop
async def test_it_leaves_in_good_order() -> None:
    async with scripted_manager() as manager:
        manager.answers("models", 200, [{"in_flight": 1}, {"in_flight": 2}])
        manager.then("models", 200, [])
        async with living(manager.url) as agent:
            await eventually(lambda: agent.why_not_ready() == "")
            client = await nats.connect(settings.CLUSTER.nats_url)
            install = subjects.of(manager.node_id, subjects.INSTALL)
            await client.request(install, b'{"backend":"llama-cpp"}', timeout=60)
            await client.publish(subjects.of(manager.node_id, subjects.STOP_NODE), b"null")
            await client.close()
            await eventually(lambda: "deregister" in manager.verbs())
        ending = [verb for verb in manager.verbs() if verb not in ("register", "heartbeat")]
        assert ending == ["drain", "models", "models", "deregister"]
        assert agent.desk.machine.processes.running() == []


@in_loop
async def test_it_deregisters_even_if_it_may_not_drain() -> None:
    async with scripted_manager() as manager:
        manager.answers("drain", 500, {})
        async with living(manager.url) as agent:
            await eventually(lambda: agent.known is not None)
        assert manager.verbs()[-2:] == ["drain", "deregister"]


@in_loop
async def test_one_that_never_got_in_just_stops() -> None:
    async with scripted_manager() as manager:
        manager.answers("register", 500)
        async with living(manager.url):
            await eventually(lambda: "register" in manager.verbs())
        assert set(manager.verbs()) == {"register"}


@in_loop
async def test_commands_under_way_are_finished_before_it_goes() -> None:
    slow = Nature(link_speed=2000, backend_size=1000)
    async with scripted_manager() as manager:
        async with living(manager.url, nature=slow) as agent:
            await eventually(lambda: agent.why_not_ready() == "")
            client = await nats.connect(settings.CLUSTER.nats_url)
            install = subjects.of(manager.node_id, subjects.INSTALL)
            asking = asyncio.create_task(
                client.request(install, b'{"backend":"x","op_id":"op-1"}', timeout=60)
            )
            await eventually(lambda: agent.desk.operations.find("op-1") is not None)
        assert b'"success":true' in (await asking).data
        await client.close()


@in_loop
async def test_a_flood_of_nonsense_leaves_it_alive() -> None:
    async with scripted_manager() as manager, living(manager.url) as agent:
        await eventually(lambda: agent.why_not_ready() == "")
        client = await nats.connect(settings.CLUSTER.nats_url)
        paths = [value for name, value in vars(subjects).items() if name.isupper()]
        for path in paths:
            if path in (subjects.STOP_NODE, "_TOKEN") or not isinstance(path, str):
                continue
            subject = subjects.of(manager.node_id, path)
            for payload in (b"x" * (2**20 - 1), b"\xff\x00", b"[" * 5000, b'{"backend":[]}'):
                await client.publish(subject, payload)
        listed = subjects.of(manager.node_id, subjects.LIST_BACKENDS)
        reply = await client.request(listed, b"{}", timeout=60)
        await client.close()
        assert json.loads(reply.data) == {"backends": []}
