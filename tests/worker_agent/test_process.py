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

from tests.services import free_port
from tests.worker_agent.loop import in_loop, until
from tests.worker_agent.scripted_manager import ScriptedManager, scripted_manager
from worker.wire import subjects

ROOT = Path(__file__).resolve().parent.parent.parent


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


@in_loop
async def test_a_node_installs_serves_and_leaves_nothing_behind(tmp_path: Path) -> None:
    port = free_port()
    async with scripted_manager() as manager:
        env = environment(tmp_path, manager, port)
        async with working(tmp_path, env) as process:
            await until(lambda: "heartbeat" in manager.verbs(), seconds=30)
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
            first = json.loads((await progress.next_msg(timeout=5)).data)
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
            assert await asyncio.wait_for(process.wait(), 30) == 0
        assert not [one for one in family if one.is_running()]
        assert manager.verbs()[-3:] == ["drain", "models", "deregister"]
    lines = (tmp_path / "worker.log").read_text().splitlines()
    assert {"registered", "listening", "leaving"} <= {json.loads(line)["event"] for line in lines}
    assert "s3cret" not in (tmp_path / "worker.log").read_text()


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
        env = environment(tmp_path, manager, free_port()) | change
        async with working(tmp_path, env) as process:
            assert await asyncio.wait_for(process.wait(), 30) == 1
        assert manager.heard == []
    assert sentence in (tmp_path / "worker.log").read_text()
