import asyncio
import json
import os
import signal
import socket
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import grpc
import psutil
import pytest

from tests.services import free_port
from tests.worker_machine.loops import eventually, in_loop
from tests.worker_machine.running import HASTY, REFERENCE, alive, backend, processes, reference
from worker.machine import Process, Refused
from worker.processes import RingLogs
from worker.processes.child import KEPT_BACK
from worker.rpc import backend_pb2 as pb
from worker.rpc.client import BackendClient

SOON = timedelta(minutes=1)
HASTY_BUT_READY = replace(HASTY, ready=timedelta(minutes=1))


def state_files(home: Path) -> list[str]:
    return [path.name for path in (home / "state").iterdir()]


@in_loop
async def test_a_started_process_answers_at_its_address(tmp_path: Path) -> None:
    async with processes(tmp_path) as own:
        started = await own.start("m#0", reference(tmp_path))
        assert own.find("m#0") == started
        assert own.running() == [started]
        assert started.directory == str(tmp_path / "reference")
        async with BackendClient(started.loopback) as client:
            assert await client.health()


@in_loop
async def test_two_replicas_live_side_by_side_and_one_is_stopped(tmp_path: Path) -> None:
    async with processes(tmp_path) as own:
        first, second = await asyncio.gather(
            own.start("m#0", reference(tmp_path)), own.start("m#1", reference(tmp_path))
        )
        assert first.port != second.port
        stopped = await own.stop("m#0", free=True)
        assert (stopped.freed, stopped.terminated, stopped.error) == (True, True, "")
        assert not alive(first.pid)
        assert own.running() == [second]
        assert own.find("m#0") is None
        assert len(state_files(tmp_path)) == 1
    assert not alive(second.pid)
    assert state_files(tmp_path) == []


@in_loop
async def test_a_process_gets_the_token_and_none_of_our_secrets(tmp_path: Path) -> None:
    secrets = dict.fromkeys(KEPT_BACK, "secret")
    async with processes(tmp_path, token="the token", knobs=secrets) as own:
        started = await own.start("m#0", reference(tmp_path))
        seen = psutil.Process(started.pid).environ()
        async with BackendClient(started.loopback) as stranger:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stranger.health()
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert {name: seen[name] for name in KEPT_BACK if name in seen} == {
        "LOCALAI_GRPC_AUTH_TOKEN": "the token"
    }


@in_loop
async def test_a_backend_that_dies_at_once_is_refused_with_its_last_words(tmp_path: Path) -> None:
    dying = backend(tmp_path, "#!/bin/sh\nfor n in $(seq 30); do echo line $n >&2; done\nexit 3\n")
    async with processes(tmp_path, count=1) as own:
        with pytest.raises(Refused) as refusal:
            await own.start("m#0", dying)
        assert own.running() == []
    text = str(refusal.value)
    assert text.startswith("backend engine exited with code 3 before it was ready")
    assert text.splitlines()[1:] == [f"line {number}" for number in range(11, 31)]
    assert state_files(tmp_path) == []


@in_loop
async def test_a_backend_that_never_answers_is_ended_in_time(tmp_path: Path) -> None:
    mute = backend(tmp_path, "#!/bin/sh\necho waiting for a sign >&2\nexec sleep 1000\n")
    logs = RingLogs()
    async with processes(tmp_path, timing=HASTY, logs=logs) as own:
        starting = asyncio.create_task(own.start("m#0", mute))
        await eventually(lambda: bool(own.running()))
        [started] = own.running()
        assert own.find("m#0") is None
        with pytest.raises(Refused, match=r"was not ready within 3 s; .*\nwaiting for a sign"):
            await starting
        assert not alive(started.pid)
    assert [line.text for line in logs.lines("m#0")] == ["waiting for a sign"]


@pytest.mark.parametrize("script", ["#!/does/not/exist\n", "", None])
@in_loop
async def test_what_cannot_be_run_is_refused_and_gives_its_port_back(
    tmp_path: Path, script: str | None
) -> None:
    broken = backend(tmp_path, script or "")
    if script is None:
        Path(broken.run).unlink()
    async with processes(tmp_path, count=1) as own:
        with pytest.raises(Refused, match="cannot start"):
            await own.start("m#0", broken)
        assert own.running() == []
        with pytest.raises(Refused, match="no free gRPC port"):  # it rests, it is not lost
            await own.start("m#0", broken)


@in_loop
async def test_a_port_of_a_stranger_is_left_alone(tmp_path: Path) -> None:
    first = free_port()
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", first))
        stranger.listen()
        async with processes(tmp_path, first=first) as own:
            started = await own.start("m#0", reference(tmp_path))
            assert started.port > first


@in_loop
async def test_a_port_that_is_lost_while_the_backend_starts_is_made_good_by_another(
    tmp_path: Path,
) -> None:
    first_fails = "#!/bin/sh\nif mkdir tried; then read go < sign; exit 1; fi\n"
    unlucky = backend(tmp_path, first_fails + REFERENCE)
    sign = Path(unlucky.run).with_name("sign")
    os.mkfifo(sign)
    async with processes(tmp_path) as own:
        starting = asyncio.create_task(own.start("m#0", unlucky))
        await eventually(lambda: bool(own.running()))
        [lost] = own.running()
        with socket.socket() as stranger:
            stranger.bind(("127.0.0.1", lost.port))
            await asyncio.to_thread(sign.write_text, "go\n")
            started = await starting
        assert started.port != lost.port


@in_loop
async def test_a_range_full_of_strangers_is_refused(tmp_path: Path) -> None:
    first = free_port()
    with socket.socket() as stranger:
        stranger.bind(("0.0.0.0", first))
        stranger.listen()
        async with processes(tmp_path, first=first, count=1) as own:
            with pytest.raises(Refused, match="no free gRPC port in the range"):
                await own.start("m#0", reference(tmp_path))


@in_loop
async def test_a_process_that_crashes_is_forgotten_and_reaped(tmp_path: Path) -> None:
    async with processes(tmp_path) as own:
        started = await own.start("m#0", reference(tmp_path))
        os.kill(started.pid, signal.SIGKILL)
        await eventually(lambda: own.find("m#0") is None)
        assert not psutil.pid_exists(started.pid)
        assert state_files(tmp_path) == []
        again = await own.start("m#0", reference(tmp_path))
        assert again.port != started.port  # the old one rests


@in_loop
async def test_who_ignores_sigterm_is_killed_with_all_of_its_group(tmp_path: Path) -> None:
    stubborn = backend(
        tmp_path,
        "#!/bin/sh\ntrap '' TERM\n"
        f'PYTHONPATH={Path.cwd()} "$WORKER_PYTHON" -m worker.reference "$@" &\n'
        "while true; do sleep 1; done\n",
    )
    async with processes(tmp_path, timing=HASTY_BUT_READY) as own:
        started = await own.start("m#0", stubborn)
        family = [started.pid, *(c.pid for c in psutil.Process(started.pid).children())]
        stopped = await own.stop("m#0", free=False)
        assert (stopped.freed, stopped.terminated) == (False, True)
        await eventually(lambda: not any(alive(pid) for pid in family))


@in_loop
async def test_children_of_a_run_sh_that_died_are_ended_with_it(tmp_path: Path) -> None:
    parent = backend(tmp_path, "#!/bin/sh\nsleep 1000 &\necho $! >&2\nexit 1\n")
    logs = RingLogs()
    async with processes(tmp_path, logs=logs) as own:
        with pytest.raises(Refused, match="exited with code 1"):
            await own.start("m#0", parent)
        [line] = logs.lines("m#0")
        await eventually(lambda: not alive(int(line.text)))


@in_loop
async def test_a_child_that_left_the_group_is_ended_too(tmp_path: Path) -> None:
    parent = backend(
        tmp_path,
        f"#!/bin/sh\nsetsid sleep 1000 &\nPYTHONPATH={Path.cwd()} "
        'exec "$WORKER_PYTHON" -m worker.reference "$@"\n',
    )
    async with processes(tmp_path) as own:
        started = await own.start("m#0", parent)
        [child] = psutil.Process(started.pid).children()
        assert os.getpgid(child.pid) != started.pid
        assert (await own.stop("m#0", free=True)).terminated
        assert not alive(child.pid)


@in_loop
async def test_a_free_that_is_not_answered_never_blocks_the_end(tmp_path: Path) -> None:
    async with processes(tmp_path, timing=HASTY_BUT_READY) as own:
        started = await own.start("m#0", reference(tmp_path))
        os.kill(started.pid, signal.SIGSTOP)
        stopped = await own.stop("m#0", free=True)
        assert (stopped.freed, stopped.terminated) == (False, True)
        assert stopped.error.startswith("freeing process m#0: DEADLINE_EXCEEDED")
        assert not alive(started.pid)


@in_loop
async def test_a_stopping_key_is_said_to_be_stopping(tmp_path: Path) -> None:
    async with processes(tmp_path, timing=HASTY_BUT_READY) as own:
        started = await own.start("m#0", reference(tmp_path))
        os.kill(started.pid, signal.SIGSTOP)
        stop = asyncio.create_task(own.stop("m#0", free=True))
        await eventually(lambda: own.stopping("m#0"))
        assert own.running() == []
        assert own.find("m#0") == started
        with pytest.raises(Refused, match="m#0 is already stopping"):
            await own.stop("m#0", free=False)
        with pytest.raises(Refused, match="m#0 is stopping"):
            await own.start("m#0", reference(tmp_path))
        assert (await stop).terminated
        assert not own.stopping("m#0")


@in_loop
async def test_a_key_is_started_once_however_many_ask(tmp_path: Path) -> None:
    async with processes(tmp_path) as own:
        asked = [own.start("m#0", reference(tmp_path)) for _ in range(4)]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(a) for a in answers if not isinstance(a, Refused)] == [Process]
        assert len(own.running()) == 1


@in_loop
async def test_a_cancelled_start_leaves_nothing_behind(tmp_path: Path) -> None:
    mute = backend(tmp_path, "#!/bin/sh\nexec sleep 1000\n")
    async with processes(tmp_path) as own:
        starting = asyncio.create_task(own.start("m#0", mute))
        await eventually(lambda: bool(own.running()))
        [started] = own.running()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert not alive(started.pid)
        assert own.running() == []


@in_loop
async def test_a_start_that_is_stopped_meanwhile_says_so(tmp_path: Path) -> None:
    mute = backend(tmp_path, "#!/bin/sh\nexec sleep 1000\n")
    async with processes(tmp_path) as own:
        starting = asyncio.create_task(own.start("m#0", mute))
        await eventually(lambda: bool(own.running()))
        assert (await own.stop("m#0", free=False)).terminated
        with pytest.raises(Refused, match="was stopped while it started"):
            await starting


@in_loop
async def test_after_the_end_nothing_is_started_any_more(tmp_path: Path) -> None:
    async with processes(tmp_path) as own:
        await own.close()
        with pytest.raises(Refused, match="shutting down"):
            await own.start("m#0", reference(tmp_path))


@in_loop
async def test_stopping_what_does_not_run_is_done_already(tmp_path: Path) -> None:
    async with processes(tmp_path) as own:
        assert (await own.stop("m#0", free=True)).terminated


@in_loop
async def test_memory_is_freed_at_an_address_and_nobody_there_is_no_error(tmp_path: Path) -> None:
    async with processes(tmp_path, token="t") as own:
        started = await own.start("m#0", reference(tmp_path))
        async with BackendClient(started.loopback, token="t") as client:
            await client.load(pb.ModelOptions(Model="m"), within=SOON)
            await own.free(started.loopback)
            assert (await client.status()).state == pb.StatusResponse.State.UNINITIALIZED
        await own.free(f"127.0.0.1:{free_port()}")
        await own.free("not an address")


@in_loop
async def test_what_a_process_prints_is_kept_after_its_death(tmp_path: Path) -> None:
    logs = RingLogs()
    async with processes(tmp_path, logs=logs) as own:
        await own.start("m#0", reference(tmp_path))
        await own.stop("m#0", free=True)
    told = [(line.stream, line.text.partition(" ")[0]) for line in logs.lines("m#0")]
    assert ("stdout", "reference") in told
    assert told[-1] == ("stderr", "INFO")


@in_loop
async def test_a_flood_of_output_does_not_stop_the_process(tmp_path: Path) -> None:
    noisy = backend(tmp_path, "#!/bin/sh\nhead -c 20000000 /dev/urandom >&2\nexit 5\n")
    async with processes(tmp_path) as own:
        with pytest.raises(Refused, match="exited with code 5") as refusal:
            await own.start("m#0", noisy)
    assert json.dumps(str(refusal.value))
