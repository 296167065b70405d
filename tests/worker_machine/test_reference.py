import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import grpc
import psutil
import pytest

from tests.worker_machine.loops import eventually, in_loop
from tests.worker_machine.running import alive, processes, reference
from worker.machine import Process, Refused
from worker.processes import Timing
from worker.reference.knobs import Knobs
from worker.rpc import backend_pb2 as pb
from worker.rpc.client import BackendClient

SOON = timedelta(minutes=1)
MODEL = "stories"
NEARLY = Timing(ready=timedelta(seconds=1))


@asynccontextmanager
async def talking(home: Path, **knobs: str) -> AsyncIterator[tuple[BackendClient, Process]]:
    """A fresh reference backend and somebody who asks it."""
    environment = {f"REFERENCE_{name.upper()}": value for name, value in knobs.items()}
    async with processes(home, token="t", knobs=environment) as own:
        started = await own.start("m#0", reference(home))
        async with BackendClient(started.loopback, token="t") as client:
            yield client, started


async def load(client: BackendClient, *options: str, **more: str) -> pb.Result:
    asked = pb.ModelOptions(Model=MODEL, Options=options, **more)  # type: ignore[arg-type]
    return await client.load(asked, within=SOON)


@in_loop
async def test_a_whole_life_from_load_to_free(tmp_path: Path) -> None:
    async with talking(tmp_path) as (client, _):
        assert (await client.status()).state == pb.StatusResponse.State.UNINITIALIZED
        assert (await load(client)).success
        assert (await client.status()).state == pb.StatusResponse.State.READY
        asked = pb.PredictOptions(Prompt="A model is", Tokens=12, ModelIdentity=MODEL)
        reply = await client.predict(asked, within=SOON)
        assert reply.message.decode() == ("loaded once and asked many times. it cools down, counts")
        assert (reply.tokens, reply.prompt_tokens) == (12, 3)
        streamed = [piece.message async for piece in client.stream(asked, within=SOON)]
        assert b"".join(streamed) == reply.message
        assert len(streamed) > 10
        vector = await client.embed(pb.PredictOptions(Embeddings="hello"), within=SOON)
        assert (len(vector.embeddings), vector.dim, vector.prompt_tokens) == (256, 256, 1)
        counted = await client.tokenize(pb.PredictOptions(Prompt="Hello, World!"))
        assert (counted.length, len(counted.tokens)) == (4, 4)
        await client.free()
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await client.predict(asked, within=SOON)
        assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert "model not loaded" in (refused.value.details() or "")


@in_loop
async def test_stop_texts_and_seeds_are_obeyed(tmp_path: Path) -> None:
    async with talking(tmp_path) as (client, _):
        await load(client)
        stopped = pb.PredictOptions(Prompt="A model is", Tokens=60, StopPrompts=["times"])
        assert (await client.predict(stopped, within=SOON)).message == (
            b"loaded once and asked many "
        )
        drawn = [
            pb.PredictOptions(Prompt="the", Tokens=30, Temperature=1, Seed=seed)
            for seed in (1, 1, 2)
        ]
        one, same, other = [await client.predict(asked, within=SOON) for asked in drawn]
        assert one.message == same.message != other.message


@in_loop
async def test_a_model_file_is_learnt_from_and_a_missing_one_is_a_failed_load(
    tmp_path: Path,
) -> None:
    (tmp_path / "model.txt").write_text("zebras zigzag zealously.")
    async with talking(tmp_path) as (client, _):
        assert (await load(client, ModelFile=str(tmp_path / "model.txt"))).success
        asked = pb.PredictOptions(Prompt="zebras", Tokens=2)
        assert (await client.predict(asked, within=SOON)).message == b"zigzag zealously"
        missing = await load(client, ModelFile=str(tmp_path / "nowhere"))
        assert not missing.success
        assert "nowhere" in missing.message


@in_loop
async def test_a_request_for_another_model_is_told_so(tmp_path: Path) -> None:
    async with talking(tmp_path) as (client, _):
        await load(client)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await client.embed(
                pb.PredictOptions(Embeddings="x", ModelIdentity="another"), within=SOON
            )
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND
        assert "model identity mismatch" in (refused.value.details() or "")


@in_loop
async def test_nobody_gets_in_without_the_token(tmp_path: Path) -> None:
    async with talking(tmp_path) as (_, started):
        for token in ("", "wrong"):
            async with BackendClient(started.loopback, token=token) as stranger:
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await stranger.health()
                assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    async for _ in stranger.stream(pb.PredictOptions(Prompt="x"), within=SOON):
                        pass
                assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


@in_loop
async def test_a_load_can_fail_in_both_ways(tmp_path: Path) -> None:
    async with talking(tmp_path) as (client, _):
        assert not (await load(client, "load_fails:result")).success
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await load(client, "load_fails:status")
        assert refused.value.code() is grpc.StatusCode.INTERNAL
        assert not (await load(client, "memory_bytes:lots")).success
        assert not (await load(client, f"memory_bytes:{2**62}")).success
        assert (await client.status()).state == pb.StatusResponse.State.UNINITIALIZED


@in_loop
async def test_memory_is_really_taken_and_really_given_back(tmp_path: Path) -> None:
    size = 200 * 2**20
    async with talking(tmp_path) as (client, started):
        resident = psutil.Process(started.pid).memory_info
        before = resident().rss
        await load(client, f"memory_bytes:{size}")
        assert resident().rss - before > 0.9 * size
        told = (await client.status()).memory
        assert told.total >= size
        assert told.breakdown["asked for"] == size
        await client.free()
        await eventually(lambda: resident().rss - before < 0.5 * size)


@in_loop
async def test_a_slow_load_takes_its_time_and_health_answers_meanwhile(tmp_path: Path) -> None:
    async with talking(tmp_path, load_seconds="30") as (client, _):
        loading = asyncio.create_task(load(client))
        assert await client.health()
        with pytest.raises(grpc.aio.AioRpcError) as late:
            await client.load(pb.ModelOptions(), within=timedelta(milliseconds=300))
        assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        loading.cancel()


@pytest.mark.parametrize("when", ["at_load", "after_load"])
@in_loop
async def test_a_crash_comes_when_it_was_asked_for(tmp_path: Path, when: str) -> None:
    async with talking(tmp_path) as (client, started):
        if when == "at_load":
            with pytest.raises(grpc.aio.AioRpcError) as gone:
                await load(client, "crash:at_load")
            assert gone.value.code() is grpc.StatusCode.UNAVAILABLE
        else:
            assert (await load(client, "crash:after_load")).success
        await eventually(lambda: not alive(started.pid))


@in_loop
async def test_a_serial_backend_is_busy_and_not_dead(tmp_path: Path) -> None:
    async with talking(tmp_path) as (client, _):
        await load(client, "serial:true", "predict_seconds:3")
        asked = pb.PredictOptions(Prompt="the", Tokens=10)
        predicting = asyncio.create_task(client.predict(asked, within=SOON))

        async def busy() -> bool:
            return (await client.status()).state == pb.StatusResponse.State.BUSY

        while not await busy():
            await asyncio.sleep(0.01)
        with pytest.raises(grpc.aio.AioRpcError) as late:
            await client.health(within=timedelta(milliseconds=200))
        assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await predicting
        assert await client.health()


@in_loop
async def test_it_can_die_at_once_or_never_get_ready(tmp_path: Path) -> None:
    async with processes(tmp_path, knobs={"REFERENCE_DIE_AT_ONCE": "7"}) as own:
        with pytest.raises(Refused, match=r"exited with code 7 .*\nERROR die_at_once is set"):
            await own.start("m#0", reference(tmp_path))
    hasty = {"REFERENCE_NEVER_READY": "true"}
    async with processes(tmp_path, knobs=hasty, timing=NEARLY) as own:
        with pytest.raises(Refused, match="was not ready within"):
            await own.start("m#0", reference(tmp_path))


@in_loop
async def test_a_slow_start_is_waited_for(tmp_path: Path) -> None:
    async with processes(tmp_path, knobs={"REFERENCE_START_SECONDS": "0.5"}) as own:
        assert await own.start("m#0", reference(tmp_path))


def test_options_win_over_the_environment_and_strangers_are_ignored() -> None:
    knobs = Knobs.read(
        {"REFERENCE_LOAD_SECONDS": "1", "REFERENCE_SERIAL": "on", "PATH": "/bin"},
        ["load_seconds:2.5", "flash_attention:true", "no colon", "crash: at_load"],
    )
    assert knobs == Knobs(load_seconds=2.5, serial=True, crash="at_load")
