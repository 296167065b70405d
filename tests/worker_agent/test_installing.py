import asyncio
from dataclasses import replace

from tests.worker_agent.machines import HOST, NODE, Bench
from tests.worker_machine.loops import eventually, in_loop
from worker.commands import progress
from worker.fleet.simulated import Nature
from worker.machine import Step, Wanted
from worker.wire import subjects

SLOW = Nature(link_speed=2000, backend_size=1000)  # half a second


@in_loop
async def test_an_install_starts_a_process_and_tells_where_others_reach_it() -> None:
    bench = Bench()
    reply = await bench.install("llama-cpp", model_id="qwen3", replica_index=1)
    assert reply == {"success": True, "address": f"{HOST}:50051"}
    assert bench.running_keys() == ["qwen3#1"]


@in_loop
async def test_without_a_model_the_process_is_known_by_its_backend() -> None:
    bench = Bench()
    await bench.install("llama-cpp")
    assert bench.running_keys() == ["llama-cpp#0"]


@in_loop
async def test_asking_again_is_a_cheap_where_is_it() -> None:
    bench = Bench()
    first = await bench.install("llama-cpp", model_id="qwen3")
    version = bench.backends.listed()
    assert await bench.install("llama-cpp", model_id="qwen3") == first
    assert bench.backends.listed() == version


@in_loop
async def test_replicas_run_side_by_side_from_one_download() -> None:
    bench = Bench()
    first, second = await asyncio.gather(
        bench.install("llama-cpp", model_id="qwen3", replica_index=0),
        bench.install("llama-cpp", model_id="qwen3", replica_index=1),
    )
    assert first["address"] != second["address"]
    assert [one.version for one in bench.backends.listed()] == ["1.1.0"]


@in_loop
async def test_a_process_of_another_backend_makes_room() -> None:
    bench = Bench()
    await bench.install("llama-cpp", model_id="qwen3")
    await bench.install("vllm", model_id="qwen3")
    [process] = bench.processes.running()
    assert (process.key, process.backend) == ("qwen3#0", "vllm")


@in_loop
async def test_a_process_whose_files_were_replaced_makes_room() -> None:
    bench = Bench()
    await bench.install("llama-cpp", model_id="qwen3")
    [old] = bench.processes.running()
    await bench.backends.fetch(Wanted(backend="llama-cpp"), tell=lambda step: None)
    await bench.install("llama-cpp", model_id="qwen3")
    [new] = bench.processes.running()
    assert new.directory != old.directory


@in_loop
async def test_force_stops_all_of_the_backend_and_fetches_anew() -> None:
    bench = Bench()
    await bench.install("llama-cpp", model_id="a")
    await bench.install("llama-cpp", model_id="b")
    await bench.install("vllm", model_id="c")
    reply = await bench.install("llama-cpp", model_id="a", force=True)
    assert reply["success"]
    assert bench.running_keys() == ["a#0", "c#0"]
    assert {one.name: one.version for one in bench.backends.listed()} == {
        "llama-cpp": "1.3.0",
        "vllm": "1.2.0",
    }


@in_loop
async def test_different_backends_do_not_wait_for_each_other() -> None:
    bench = Bench(nature=SLOW)
    began = asyncio.get_running_loop().time()
    await asyncio.gather(*(bench.install(f"backend-{number}") for number in range(8)))
    assert asyncio.get_running_loop().time() - began < 8 * 0.5 / 2


@in_loop
async def test_an_install_that_fails_says_why_and_leaves_nothing() -> None:
    bench = Bench(nature=replace(SLOW, link_speed=0, fail_rate=1))
    reply = await bench.install("llama-cpp")
    assert reply["success"] is False
    assert "connection reset" in reply["error"]
    assert (bench.backends.listed(), bench.running_keys()) == ([], [])


@in_loop
async def test_an_upgrade_stops_every_process_of_the_backend_and_starts_none() -> None:
    bench = Bench()
    await bench.install("llama-cpp", model_id="a")
    await bench.install("llama-cpp", model_id="a", replica_index=1)
    await bench.install("vllm", model_id="b")
    reply = await bench.ask(subjects.UPGRADE, {"backend": "llama-cpp"})
    assert reply == {
        "success": True,
        "stopped_process_keys": ["a#0", "a#1"],
        "reports_stopped_processes": True,
    }
    assert bench.running_keys() == ["b#0"]
    assert {one.version for one in bench.backends.listed()} == {"1.2.0", "1.3.0"}


@in_loop
async def test_an_upgrade_by_alias_reaches_the_processes_of_the_real_name() -> None:
    bench = Bench()
    uri = {"uri": "https://example.com/x.tar", "name": "cuda12-llama", "alias": "llama-cpp"}
    await bench.install("cuda12-llama", model_id="a", **uri)
    reply = await bench.ask(subjects.UPGRADE, {"backend": "llama-cpp", **uri})
    assert reply["stopped_process_keys"] == ["a#0"]


@in_loop
async def test_a_failed_upgrade_still_tells_what_it_stopped() -> None:
    bench = Bench()
    await bench.install("llama-cpp", model_id="a")
    bench.backends.nature = Nature(fail_rate=1)
    reply = await bench.ask(subjects.UPGRADE, {"backend": "llama-cpp"})
    assert reply["success"] is False
    assert reply["stopped_process_keys"] == ["a#0"]
    assert reply["reports_stopped_processes"] is True


@in_loop
async def test_a_delete_stops_and_removes() -> None:
    bench = Bench()
    await bench.install("llama-cpp", model_id="a")
    assert await bench.ask(subjects.DELETE_BACKEND, {"backend": "llama-cpp"}) == {
        "success": True,
        "stopped_process_keys": ["a#0"],
        "reports_stopped_processes": True,
    }
    assert bench.backends.listed() == []


@in_loop
async def test_deleting_what_is_not_there_is_refused() -> None:
    reply = await Bench().ask(subjects.DELETE_BACKEND, {"backend": "nothing"})
    assert reply["success"] is False
    assert "not found" in reply["error"]


@in_loop
async def test_what_is_being_installed_cannot_be_deleted() -> None:
    bench = Bench(nature=SLOW)
    installing = asyncio.create_task(bench.install("llama-cpp", op_id="op-1"))
    await eventually(lambda: bool(bench.said))
    reply = await bench.ask(subjects.DELETE_BACKEND, {"backend": "llama-cpp"})
    assert reply["error"] == "llama-cpp is being installed; try again later"
    assert (await installing)["success"]


@in_loop
async def test_an_operation_asked_for_twice_is_done_once() -> None:
    bench = Bench(nature=SLOW)
    first, second = await asyncio.gather(
        bench.install("llama-cpp", force=True, op_id="op-1"),
        bench.install("llama-cpp", force=True, op_id="op-1"),
    )
    assert first == second == await bench.install("llama-cpp", force=True, op_id="op-1")
    assert [one.version for one in bench.backends.listed()] == ["1.1.0"]


@in_loop
async def test_another_operation_is_not_taken_for_the_first() -> None:
    bench = Bench()
    await bench.install("llama-cpp", force=True, op_id="op-1")
    await bench.install("llama-cpp", force=True, op_id="op-2")
    await bench.ask(subjects.UPGRADE, {"backend": "llama-cpp", "op_id": "op-2"})
    assert [one.version for one in bench.backends.listed()] == ["1.3.0"]


@in_loop
async def test_one_who_asks_and_leaves_does_not_end_the_work() -> None:
    bench = Bench(nature=SLOW)
    asking = asyncio.create_task(bench.install("llama-cpp", op_id="op-1"))
    await eventually(lambda: bool(bench.said))
    asking.cancel()
    assert (await bench.install("llama-cpp", op_id="op-1"))["success"]
    assert [one.version for one in bench.backends.listed()] == ["1.1.0"]


@in_loop
async def test_a_download_can_be_given_up() -> None:
    bench = Bench(nature=Nature(link_speed=1, backend_size=10_000))
    installing = asyncio.create_task(bench.install("llama-cpp", op_id="op-1"))
    await eventually(lambda: bool(bench.said))
    assert await bench.ask(subjects.CANCEL, {"op_id": "op-1"}) == {"cancelled": True}
    assert await installing == {"success": False, "error": "cancelled"}
    assert (bench.backends.listed(), bench.running_keys()) == ([], [])


@in_loop
async def test_one_that_waits_for_its_turn_can_be_given_up_too() -> None:
    bench = Bench(nature=SLOW)
    first = asyncio.create_task(bench.install("llama-cpp", model_id="a", op_id="op-1"))
    second = asyncio.create_task(bench.install("llama-cpp", model_id="b", op_id="op-2"))
    await eventually(lambda: len(bench.said) >= 2)
    assert await bench.ask(subjects.CANCEL, {"op_id": "op-2"}) == {"cancelled": True}
    assert (await first)["success"]
    assert (await second)["error"] == "cancelled"
    assert bench.running_keys() == ["a#0"]


@in_loop
async def test_a_cancelled_upgrade_tells_what_it_stopped() -> None:
    bench = Bench()
    await bench.install("llama-cpp", model_id="a")
    bench.backends.nature = Nature(link_speed=1, backend_size=10_000)
    upgrading = asyncio.create_task(
        bench.ask(subjects.UPGRADE, {"backend": "llama-cpp", "op_id": "op-1"})
    )
    await eventually(lambda: bench.running_keys() == [])
    await bench.ask(subjects.CANCEL, {"op_id": "op-1"})
    reply = await upgrading
    assert (reply["error"], reply["stopped_process_keys"]) == ("cancelled", ["a#0"])


@in_loop
async def test_what_is_over_or_starting_cannot_be_given_up() -> None:
    bench = Bench()
    unknown = await bench.ask(subjects.CANCEL, {"op_id": "op-1"})
    assert unknown == {"cancelled": False, "error": "no operation op-1 is running"}
    installing = asyncio.create_task(bench.install("llama-cpp", op_id="op-1"))
    operations = bench.desk.operations
    await eventually(lambda: bool((found := operations.find("op-1")) and found.committed))
    late = await bench.ask(subjects.CANCEL, {"op_id": "op-1"})
    assert late["error"] == "operation op-1 is past its download and will finish"
    assert (await installing)["success"]


@in_loop
async def test_progress_begins_at_once_and_ends_with_the_last_step() -> None:
    bench = Bench(nature=Nature(link_speed=1000, backend_size=1200))
    await bench.install("llama-cpp", op_id="op.1")
    where = {subject for subject, _ in bench.said}
    ticks = [event for _, event in bench.said]
    assert where == {f"nodes.{NODE}.backend.install.op-1.progress"}
    assert ticks[0] == {
        "op_id": "op.1",
        "node_id": NODE,
        "backend": "llama-cpp",
        "percentage": 0.0,
        "phase": "resolving",
        "seq": 1,
    }
    assert [tick["seq"] for tick in ticks] == list(range(1, len(ticks) + 1))
    assert ticks[-1]["phase"] == "starting"
    assert {tick["phase"] for tick in ticks} >= {"resolving", "downloading", "starting"}
    assert len(ticks) <= 2 + 1.3 / progress.PAUSE


@in_loop
async def test_a_flood_of_steps_is_four_a_second_and_the_last_one_is_told() -> None:
    told: list[int] = []

    async def publish(subject: str, payload: bytes) -> None:
        told.append(len(payload))

    ticker = progress.Ticker(publish, node_id=NODE, op_id="x", backend="b")
    for number in range(1000):
        ticker.tell(Step(phase="downloading", current=number, total=1000))
        await asyncio.sleep(0)
    await ticker.finish()
    assert len(told) == 2
    ticker.tell(Step(phase="downloading"))
    await asyncio.sleep(0)
    assert len(told) == 2


@in_loop
async def test_without_an_operation_id_nothing_is_published() -> None:
    bench = Bench()
    assert (await bench.install("llama-cpp"))["success"]
    assert bench.said == []


@in_loop
async def test_progress_that_cannot_be_sent_does_not_fail_the_install() -> None:
    bench = Bench()

    async def cut_off(subject: str, payload: bytes) -> None:
        raise ConnectionError("gone")

    handler = bench.desk.handlers(NODE, cut_off)[subjects.INSTALL]
    assert b'"success":true' in (await handler(b'{"backend":"x","op_id":"op-1"}') or b"")


@in_loop
async def test_a_worker_that_leaves_begins_nothing() -> None:
    bench = Bench()
    bench.desk.leaving = True
    assert (await bench.install("llama-cpp"))["error"] == "the worker is shutting down"


@in_loop
async def test_galleries_that_cannot_be_read_are_an_answer() -> None:
    bench = Bench()
    assert "not JSON" in (await bench.install("x", backend_galleries="{"))["error"]
    reply = await bench.ask(subjects.UPGRADE, {"backend": "x", "backend_galleries": "{"})
    assert reply["success"] is False
