"""`python -m worker` as systemd would run it: real processes, real NATS, a scripted manager."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import nats
import psutil
import pytest
from django.conf import settings

from tests.services import free_ports
from tests.worker_agent.scripted_manager import ScriptedManager, scripted_manager
from tests.worker_machine.loops import eventually, in_loop
from tests.worker_machine.web import Site, serving
from worker import builtin
from worker.wire import subjects

ROOT = Path(__file__).resolve().parent.parent.parent


def a_port() -> int:
    """With the one below for its pages, and some above for backends."""
    return free_ports(10) + 1


def environment(home: Path, manager: ScriptedManager, port: int) -> dict[str, str]:
    return {
        **os.environ,
        "LOCALAI_REGISTER_TO": manager.url,
        "LOCALAI_NATS_URL": settings.CLUSTER.nats_url,
        "LOCALAI_REGISTRATION_TOKEN": "s3cret",
        "LOCALAI_NODE_NAME": "gpu-a",
        "LOCALAI_ADDR": f"127.0.0.1:{port}",
        "LOCALAI_HEARTBEAT_INTERVAL": "200ms",
        "WORKER_STATE_DIR": str(home),
        "WORKER_LOG_FORMAT": "json",
    }


@asynccontextmanager
async def working(home: Path, env: dict[str, str]) -> AsyncIterator[asyncio.subprocess.Process]:
    with (home / "worker.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "worker", cwd=ROOT, env=env, stderr=log
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
            sys.stderr.write((home / "worker.log").read_text())  # for who finds this test failed


@in_loop
async def test_a_node_installs_serves_and_leaves_nothing_behind(tmp_path: Path) -> None:
    port = a_port()
    async with scripted_manager() as manager:
        env = environment(tmp_path, manager, port)
        async with working(tmp_path, env) as process:
            await eventually(lambda: "heartbeat" in manager.verbs())
            client = await nats.connect(settings.CLUSTER.nats_url)
            progress = await client.subscribe(subjects.progress(manager.node_id, "op-1"))
            answer = await client.request(
                subjects.of(manager.node_id, subjects.INSTALL),
                b'{"backend":"reference","model_id":"m","op_id":"op-1"}',
                timeout=40,
            )
            reply = json.loads(answer.data)
            assert reply["success"], reply
            assert reply["address"].startswith("127.0.0.1:")
            first = json.loads((await progress.next_msg(timeout=60)).data)
            assert (first["phase"], first["seq"]) == ("resolving", 1)
            await client.close()
            async with (
                aiohttp.ClientSession() as session,
                session.get(
                    f"http://127.0.0.1:{port - 1}/v1/backend-logs",
                    headers={"Authorization": "Bearer s3cret"},
                ) as logs,
            ):
                assert logs.status == 200
            family = psutil.Process(process.pid).children(recursive=True)
            assert family
            process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(process.wait(), 60) == 0
        assert not [one for one in family if one.is_running()]
        # It beats until the end, also while it leaves
        told = [verb for verb in manager.verbs() if verb != "heartbeat"]
        assert told[-3:] == ["drain", "models", "deregister"]
    lines = (tmp_path / "worker.log").read_text().splitlines()
    assert {"registered", "listening", "leaving"} <= {json.loads(line)["event"] for line in lines}
    assert "s3cret" not in (tmp_path / "worker.log").read_text()


@in_loop
async def test_a_download_is_given_up_and_continued_later(tmp_path: Path) -> None:
    current, _ = builtin.galleries(tmp_path / "site")
    home = Path(current.url).parent
    [archive] = home.glob("archives/*1.1.0*")
    files = {
        f"/{path.relative_to(home)}": path.read_bytes() for path in (Path(current.url), archive)
    }
    async with serving(Site(files=files)) as site, scripted_manager() as manager:
        galleries = json.dumps([{"name": "g", "url": f"{site.url}/index.yaml"}])
        slow = {"WORKER_DOWNLOAD_RATE": "2MB", "LOCALAI_BACKEND_GALLERIES": galleries}
        async with working(tmp_path, environment(tmp_path, manager, a_port()) | slow):
            await eventually(lambda: "heartbeat" in manager.verbs())
            client = await nats.connect(settings.CLUSTER.nats_url)
            progress = await client.subscribe(subjects.progress(manager.node_id, "op-1"))
            install = subjects.of(manager.node_id, subjects.INSTALL)
            asking = asyncio.create_task(
                client.request(install, b'{"backend":"reference","op_id":"op-1"}', timeout=40)
            )
            phase = ""
            while phase != "downloading":
                phase = json.loads((await progress.next_msg(timeout=60)).data)["phase"]
            cancel = subjects.of(manager.node_id, subjects.CANCEL)
            answer = await client.request(cancel, b'{"op_id":"op-1"}', timeout=60)
            assert json.loads(answer.data) == {"cancelled": True}
            reply = json.loads((await asking).data)
            assert (reply["success"], reply["error"]) == (False, "cancelled")
            listed = subjects.of(manager.node_id, subjects.LIST_BACKENDS)
            there = await client.request(listed, b"{}", timeout=60)
            assert json.loads(there.data) == {"backends": []}
            again = await client.request(install, b'{"backend":"reference"}', timeout=40)
            assert json.loads(again.data)["success"]
            await client.close()
        ranges = [asked for path, asked in site.asked if path.endswith(".tar.gz")]
        assert ranges[0] == ""
        assert int(ranges[-1].removeprefix("bytes=").rstrip("-")) > 0


@in_loop
async def test_a_second_signal_waits_for_nobody_and_still_leaves_nothing(tmp_path: Path) -> None:
    async with scripted_manager() as manager:
        manager.answers("models", 200, [{"in_flight": 1}])  # for ever
        async with working(tmp_path, environment(tmp_path, manager, a_port())) as process:
            await eventually(lambda: "heartbeat" in manager.verbs())
            client = await nats.connect(settings.CLUSTER.nats_url)
            install = subjects.of(manager.node_id, subjects.INSTALL)
            await client.request(install, b'{"backend":"reference"}', timeout=40)
            await client.close()
            family = psutil.Process(process.pid).children(recursive=True)
            process.send_signal(signal.SIGTERM)
            await eventually(lambda: "models" in manager.verbs())
            process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(process.wait(), 60) == 0
        assert family
        assert not [one for one in family if one.is_running()]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"LOCALAI_REGISTER_TO": ""}, "worker: LOCALAI_REGISTER_TO is required"),
        ({"LOCALAI_HTTP_ADDR": "192.0.2.1:80"}, "worker: Cannot listen on 192.0.2.1:80"),
    ],
)
@in_loop
async def test_one_that_cannot_start_says_why(
    tmp_path: Path, change: dict[str, str], sentence: str
) -> None:
    async with scripted_manager() as manager:
        env = environment(tmp_path, manager, a_port()) | change
        async with working(tmp_path, env) as process:
            assert await asyncio.wait_for(process.wait(), 60) == 1
        assert manager.heard == []
    assert sentence in (tmp_path / "worker.log").read_text()
