import json
from pathlib import Path
from typing import Any

import pytest

from tests.worker_agent.machines import HOST, Bench
from tests.worker_machine.loops import in_loop
from worker.fleet.simulated import MemoryProcesses
from worker.machine import Installed, Stopped
from worker.models import ModelFiles
from worker.wire import subjects


async def running() -> Bench:
    """Two replicas of a and one of ab on llama-cpp, one of c on vllm."""
    bench = Bench()
    for model, index, backend in (("a", 0, "llama-cpp"), ("a", 1, "llama-cpp")):
        await bench.install(backend, model_id=model, replica_index=index)
    await bench.install("llama-cpp", model_id="ab")
    await bench.install("vllm", model_id="c")
    return bench


@pytest.mark.parametrize(
    ("payload", "left"),
    [
        (b"", []),
        (b"null", []),
        (b"{}", []),
        (b'{"backend":""}', []),
        (b'{"backend":"","force":true}', []),
        (b'{"backend":null}', []),
        (b'{"backend":"llama-cpp"}', ["c#0"]),
        (b'{"backend":"a#1"}', ["a#0", "ab#0", "c#0"]),
        (b'{"backend":"a","force":true}', ["ab#0", "c#0"]),
        (b'{"backend":"a#"}', ["a#0", "a#1", "ab#0", "c#0"]),
        (b'{"backend":"a#7"}', ["a#0", "a#1", "ab#0", "c#0"]),
        (b'{"backend":"nothing"}', ["a#0", "a#1", "ab#0", "c#0"]),
        (b"{", ["a#0", "a#1", "ab#0", "c#0"]),
        (b'{"backend":7}', ["a#0", "a#1", "ab#0", "c#0"]),
        (b"[]", ["a#0", "a#1", "ab#0", "c#0"]),
        (b'"llama-cpp"', ["a#0", "a#1", "ab#0", "c#0"]),
    ],
)
@in_loop
async def test_a_stop_means_what_its_word_means_and_nonsense_means_nothing(
    payload: bytes, left: list[str]
) -> None:
    bench = await running()
    assert await bench.raw(subjects.STOP_BACKEND, payload) is None
    assert bench.running_keys() == left


@in_loop
async def test_the_exact_stop_kills_one_of_two() -> None:
    bench = await running()
    reply = await bench.ask(subjects.STOP_MODEL, _stop("a#1", "127.0.0.1:50052"))
    assert reply == {
        "matched": True,
        "freed": True,
        "terminated": True,
        "process_key": "a#1",
        "address": "127.0.0.1:50052",
    }
    assert bench.running_keys() == ["a#0", "ab#0", "c#0"]


@in_loop
async def test_a_forced_exact_stop_frees_nothing() -> None:
    bench = await running()
    request = {**_stop("a#1", "127.0.0.1:50052"), "force": True}
    reply = await bench.ask(subjects.STOP_MODEL, request)
    assert (reply["freed"], reply["terminated"]) == (False, True)


@in_loop
async def test_stopping_what_is_not_there_is_a_success() -> None:
    reply = await Bench().ask(subjects.STOP_MODEL, _stop("a#1", "127.0.0.1:50052"))
    assert reply == {"matched": False, "freed": False, "terminated": True, "process_key": "a#1"}


@pytest.mark.parametrize("address", ["10.0.0.7:50052", "127.0.0.1:50051", ""])
@in_loop
async def test_another_address_is_another_process(address: str) -> None:
    bench = await running()
    reply = await bench.ask(subjects.STOP_MODEL, _stop("a#1", address))
    assert (reply["matched"], reply["terminated"]) == (True, False)
    assert reply["error"] == f"address mismatch: expected {address}, have 127.0.0.1:50052"
    assert "a#1" in bench.running_keys()


class Stubborn(MemoryProcesses):
    """A process that ends as a test says."""

    end = Stopped(freed=True, terminated=True)
    is_stopping = False

    def stopping(self, key: str) -> bool:
        return self.is_stopping

    async def stop(self, key: str, *, free: bool) -> Stopped:
        return self.end


class FreeFails(Stubborn):
    end = Stopped(freed=False, terminated=True, error="freeing process a#0: deadline exceeded")


class Survives(Stubborn):
    end = Stopped(freed=True, terminated=False, error="pid 7 is still there")


class IsStopping(Stubborn):
    is_stopping = True


@pytest.mark.parametrize(
    ("processes", "told"),
    [
        (FreeFails(), (False, True, "freeing process a#0: deadline exceeded")),
        (Survives(), (True, False, "pid 7 is still there")),
        (IsStopping(), (False, False, "a#0 is already stopping")),
    ],
    ids=["free fails", "survives", "already stopping"],
)
@in_loop
async def test_an_exact_stop_that_went_badly_says_how(
    processes: Stubborn, told: tuple[bool, bool, str]
) -> None:
    bench = Bench(processes=processes)
    await processes.start("a#0", Installed(name="llama-cpp", run="/x/run.sh"))
    reply = await bench.ask(subjects.STOP_MODEL, _stop("a#0", "127.0.0.1:50051"))
    assert reply["matched"] is True
    assert (reply["freed"], reply["terminated"], reply["error"]) == told


@in_loop
async def test_nothing_is_started_in_the_place_of_what_is_stopping() -> None:
    reply = await Bench(processes=IsStopping()).install("llama-cpp", model_id="a")
    assert reply == {"success": False, "error": "a#0 is stopping"}


@pytest.mark.parametrize("path", [subjects.DELETE_BACKEND, subjects.UPGRADE])
@in_loop
async def test_files_are_not_touched_under_a_process_that_survives(path: str) -> None:
    bench = Bench(processes=Survives())
    await bench.install("llama-cpp", model_id="a")
    before = bench.backends.listed()
    reply = await bench.ask(path, {"backend": "llama-cpp"})
    assert reply["success"] is False
    assert "could not stop a#0: pid 7 is still there" in reply["error"]
    assert bench.backends.listed() == before


@pytest.mark.parametrize(
    ("path", "failure"),
    [
        (subjects.INSTALL, {"success": False}),
        (subjects.UPGRADE, {"success": False}),
        (subjects.DELETE_BACKEND, {"success": False}),
        (subjects.CANCEL, {"cancelled": False}),
        (subjects.UNLOAD_MODEL, {"success": False}),
        (subjects.DELETE_MODEL, {"success": False}),
        (
            subjects.STOP_MODEL,
            {"matched": False, "freed": False, "terminated": False, "process_key": ""},
        ),
    ],
)
@pytest.mark.parametrize(
    "payload", [b"", b"{", b"[]", b"7", b"\xff", b'{"op_id":7,"backend":{}' + b"}"]
)
@in_loop
async def test_what_cannot_be_read_is_refused_in_the_commands_own_shape(
    path: str, failure: dict[str, Any], payload: bytes
) -> None:
    if path in (subjects.UNLOAD_MODEL, subjects.DELETE_MODEL, subjects.STOP_MODEL) and (
        payload.startswith(b'{"op')
    ):
        payload = b'{"model_name":7}'
    answer = json.loads(await Bench().raw(path, payload) or b"")
    assert answer.pop("error").startswith("invalid request: ")
    assert answer == failure


@pytest.mark.parametrize("payload", [b"{}", b"", b"null", b"{"])
@in_loop
async def test_what_runs_and_what_is_there_is_told_whatever_the_question(payload: bytes) -> None:
    bench = Bench()
    await bench.install("llama-cpp", model_id="org/m#v2", replica_index=3)
    running = json.loads(await bench.raw(subjects.RUNNING_MODELS, payload) or b"")
    assert running == {
        "models": [{"model_id": "org/m#v2", "replica_index": 3, "address": "127.0.0.1:50051"}]
    }
    listed = json.loads(await bench.raw(subjects.LIST_BACKENDS, payload) or b"")
    [backend] = listed["backends"]
    assert (backend["name"], backend["is_system"], backend["version"]) == (
        "llama-cpp",
        False,
        "1.1.0",
    )


@pytest.mark.parametrize("address", ["127.0.0.1:50051", f"{HOST}:50051"])
@in_loop
async def test_memory_is_freed_at_the_address_of_a_process(address: str) -> None:
    bench = await running()
    reply = await bench.ask(subjects.UNLOAD_MODEL, {"model_name": "a", "address": address})
    assert reply == {"success": True}
    assert list(bench.processes.freed) == ["127.0.0.1:50051"]


@pytest.mark.parametrize("address", ["", "127.0.0.1:22", "10.9.9.9:50051", "nonsense"])
@in_loop
async def test_without_the_address_of_a_process_nothing_is_freed(address: str) -> None:
    bench = await running()
    reply = await bench.ask(subjects.UNLOAD_MODEL, {"model_name": "a", "address": address})
    assert reply == {"success": True}
    assert not bench.processes.freed


@in_loop
async def test_the_node_is_sent_home() -> None:
    bench = Bench()
    assert await bench.raw(subjects.STOP_NODE, b"null") is None
    assert bench.left


def _files(home: Path) -> Bench:
    (home / "models/dir/deep").mkdir(parents=True)
    (home / "models/dir/deep/weights").write_text("x")
    (home / "models/org").mkdir()
    for name in ("org/m", "m.gguf", "m.gguf.sha256", "m.ggufx", "other"):
        (home / "models" / name).write_text("x")
    (home / "secret").write_text("x")
    (home / "models/link").symlink_to(home)
    return Bench(models=ModelFiles(home / "models"))


@pytest.mark.parametrize(
    ("name", "gone"),
    [
        ("dir", {"dir", "dir/deep", "dir/deep/weights"}),
        ("m.gguf", {"m.gguf", "m.gguf.sha256"}),
        ("org/m", {"org/m"}),
        ("dir/../other", {"other"}),
        ("link", {"link"}),
        ("nothing", set()),
        ("no/such/place", set()),
    ],
)
@in_loop
async def test_a_models_files_are_removed(tmp_path: Path, name: str, gone: set[str]) -> None:
    bench = _files(tmp_path)
    before = _everything(tmp_path / "models")
    assert await bench.ask(subjects.DELETE_MODEL, {"model_name": name}) == {"success": True}
    assert before - _everything(tmp_path / "models") == gone
    assert (tmp_path / "secret").exists()


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        ".",
        "..",
        "/",
        "../secret",
        "dir/../../secret",
        "link/secret",
        "/etc/hosts",
        "dir/..",
    ],
)
@in_loop
async def test_a_name_that_leads_out_of_the_models_removes_nothing(
    tmp_path: Path, name: str
) -> None:
    bench = _files(tmp_path)
    before = _everything(tmp_path)
    reply = await bench.ask(subjects.DELETE_MODEL, {"model_name": name})
    assert reply["success"] is False
    assert reply["error"].startswith("model name ")
    assert _everything(tmp_path) == before


def _everything(home: Path) -> set[str]:
    return {str(path.relative_to(home)) for path in home.rglob("*")}


def _stop(key: str, address: str) -> dict[str, str]:
    return {
        "model_name": key.partition("#")[0],
        "process_key": key,
        "expected_address": address,
    }
