import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.contract_worker.gallery import Galleries
from tests.contract_worker.ours import ROOT, until
from tests.contract_worker.target import Target, loopback

# --- model.stop: every row of the table in wire 1.3.8 but "survived SIGKILL" --------------------


def test_an_exact_stop_ends_one_of_two(worker: Target) -> None:
    first, second = worker.installed("llama", 0), worker.installed("llama", 1)
    reply = worker.stop_exactly("llama#0", loopback(first))
    assert (reply["matched"], reply["freed"], reply["terminated"]) == (True, True, True)
    assert reply["process_key"] == "llama#0"
    assert not reply.get("error")
    assert not worker.healthy(first)
    assert worker.healthy(second)
    assert worker.bus.running() == {("llama", 1): loopback(second)}


def test_an_exact_stop_of_what_is_gone_is_a_success(worker: Target) -> None:
    reply = worker.stop_exactly("llama#0", "127.0.0.1:1")
    assert (reply["matched"], reply["terminated"]) == (False, True)
    assert not reply.get("address")


def test_an_exact_stop_with_another_address_stops_nothing(worker: Target) -> None:
    address = worker.installed("llama")
    reply = worker.stop_exactly("llama#0", "127.0.0.1:1")
    assert (reply["matched"], reply["terminated"]) == (True, False)
    assert "address mismatch" in reply["error"]
    assert worker.healthy(address)


def test_the_advertised_address_is_another_address(own: Target) -> None:
    address = own.installed("llama")
    assert address.startswith("localhost:")
    assert "address mismatch" in own.stop_exactly("llama#0", address)["error"]


def test_an_exact_stop_by_force_does_not_free(worker: Target) -> None:
    address = worker.installed("llama")
    reply = worker.stop_exactly("llama#0", loopback(address), force=True)
    assert (reply["matched"], reply["freed"], reply["terminated"]) == (True, False, True)


@pytest.mark.parametrize("manner", ["free-fails", "free-hangs"])
def test_a_backend_that_cannot_free_is_ended_and_told(
    own: Target, galleries: Galleries, manner: str
) -> None:
    galleries.add_folder("other", manner=manner)
    address = own.installed("llama", backend="other")
    reply = own.stop_exactly("llama#0", loopback(address))
    assert (reply["matched"], reply["freed"], reply["terminated"]) == (True, False, True)
    assert "freeing process" in reply["error"]


def test_a_stop_of_what_is_being_stopped_is_told_so(own: Target, galleries: Galleries) -> None:
    galleries.add_folder("other", manner="free-hangs")
    address = loopback(own.installed("llama", backend="other"))
    with ThreadPoolExecutor(1) as crowd:
        first = crowd.submit(own.stop_exactly, "llama#0", address)
        until(lambda: own.bus.running() == {})
        second = own.stop_exactly("llama#0", address)
        assert (second["matched"], second["terminated"]) == (True, False)
        assert "already stopping" in second["error"]
        assert first.result()["terminated"] is True


def test_an_exact_stop_that_is_no_json_is_refused(worker: Target) -> None:
    reply = json.loads(worker.bus.ask_raw("model.stop", b"{", within=30))
    assert (reply["matched"], reply["freed"], reply["terminated"]) == (False, False, False)
    assert "invalid request" in reply["error"]


# --- backend.stop: nobody answers, so what runs is the answer -----------------------------------


@pytest.fixture
def three(worker: Target) -> Target:
    for model, replica in (("llama", 0), ("llama", 1), ("qwen", 0)):
        worker.installed(model, replica)
    return worker


@pytest.mark.parametrize(
    ("payload", "left"),
    [
        (b"", set()),
        (b"null", set()),
        (b"{}", set()),
        (b'{"backend":"","force":true}', set()),
        (b'{"backend":"llama#1"}', {("llama", 0), ("qwen", 0)}),
        (b'{"backend":"llama"}', {("qwen", 0)}),
        (b'{"BACKEND":"qwen","force":true}', {("llama", 0), ("llama", 1)}),
    ],
)
def test_a_stop_ends_what_its_word_means(
    three: Target, payload: bytes, left: set[tuple[str, int]]
) -> None:
    three.bus.tell("backend.stop", payload)
    until(lambda: set(three.bus.running()) == left)


def test_a_stop_of_a_backend_ends_all_its_processes(three: Target) -> None:
    three.bus.tell("backend.stop", json.dumps({"backend": three.backend}).encode())
    until(lambda: three.bus.running() == {})


@pytest.mark.parametrize("payload", [b"{", b"[]", b"1", b'{"backend":7}', b'{"backend":"llam#0"}'])
def test_a_stop_that_means_nothing_stops_nothing(three: Target, payload: bytes) -> None:
    three.bus.tell("backend.stop", payload)
    assert len(three.bus.running()) == 3  # asked after it, on another subject: give it a moment
    three.bus.tell("backend.stop", b'{"backend":"qwen"}')
    until(lambda: ("qwen", 0) not in three.bus.running())
    assert len(three.bus.running()) == 2


# --- unload, upgrade, delete --------------------------------------------------------------------


@pytest.mark.parametrize("told", [loopback, str], ids=["loopback", "advertised"])
def test_an_unload_keeps_the_process(worker: Target, told: Any) -> None:
    address = worker.installed("llama")
    request = {"model_name": "llama", "address": told(address)}
    assert worker.bus.ask("model.unload", request)["success"] is True
    assert worker.healthy(address)
    assert list(worker.bus.running()) == [("llama", 0)]


def test_an_unload_where_nothing_runs_is_a_success(worker: Target) -> None:
    request = {"model_name": "llama", "address": "127.0.0.1:1"}
    assert worker.bus.ask("model.unload", request)["success"] is True


def test_an_upgrade_stops_every_process_of_the_backend_and_starts_none(worker: Target) -> None:
    for model, replica in (("llama", 0), ("llama", 1), ("qwen", 0)):
        worker.installed(model, replica)
    request = {"backend": worker.backend, "backend_galleries": worker.galleries}
    reply = worker.bus.ask("backend.upgrade", request, within=worker.patience)
    assert reply["success"] is True, reply
    assert reply["reports_stopped_processes"] is True
    assert sorted(reply["stopped_process_keys"]) == ["llama#0", "llama#1", "qwen#0"]
    assert "address" not in reply
    assert worker.bus.running() == {}
    assert worker.healthy(worker.installed("llama"))


def test_an_upgrade_brings_the_new_version_and_leaves_others_alone(
    own: Target, galleries: Galleries
) -> None:
    galleries.add_address("other", version="1.0.0")
    own.installed("llama", backend="other")
    bystander = own.installed("qwen")
    before = own.listed()["other"]
    galleries.add_address("other", version="2.0.0")
    request = {"backend": "other", "backend_galleries": own.galleries, "op_id": "up"}
    with own.bus.progress("up") as ticks:
        reply = own.bus.ask("backend.upgrade", request)
    assert reply["stopped_process_keys"] == ["llama#0"]
    assert ticks
    after = own.listed()["other"]
    assert (before["version"], after["version"]) == ("1.0.0", "2.0.0")
    assert before["digest"] != after["digest"]
    assert own.healthy(bystander)


def test_the_built_in_gallery_has_a_version_to_upgrade_from(own: Target, tmp_path: Path) -> None:
    home = tmp_path / "builtin"
    subprocess.run([sys.executable, "-m", "worker.builtin", str(home)], cwd=ROOT, check=True)
    previous, current = (
        json.dumps([{"name": "builtin", "url": str(index)}])
        for index in (home / "previous" / "index.yaml", home / "index.yaml")
    )
    address = own.installed("llama", backend="reference", backend_galleries=previous)
    assert own.healthy(address)
    before = own.listed()["reference"]
    request = {"backend": "reference", "backend_galleries": current}
    assert own.bus.ask("backend.upgrade", request)["success"] is True
    after = own.listed()["reference"]
    assert before["version"] < after["version"]
    assert before["digest"] != after["digest"]
    assert own.healthy(own.installed("llama", backend="reference", backend_galleries=current))


def test_an_upgrade_that_fails_leaves_the_old_files_usable(
    own: Target, galleries: Galleries
) -> None:
    galleries.add_address("other", version="1.0.0")
    own.installed("llama", backend="other")
    galleries.add_address("other", version="2.0.0")
    galleries.spoil("other")
    request = {"backend": "other", "backend_galleries": own.galleries}
    reply = own.bus.ask("backend.upgrade", request)
    assert (reply["success"], bool(reply["error"])) == (False, True)
    assert own.listed()["other"]["version"] == "1.0.0"
    assert own.healthy(own.installed("llama", backend="other"))


def test_a_deleted_backend_is_stopped_and_gone(own: Target, galleries: Galleries) -> None:
    galleries.add_folder("other")
    own.installed("llama", backend="other")
    own.installed("qwen")
    reply = own.bus.ask("backend.delete", {"backend": "other"})
    assert reply["success"] is True, reply
    assert (reply["reports_stopped_processes"], reply["stopped_process_keys"]) == (
        True,
        ["llama#0"],
    )
    assert "other" not in own.listed()
    assert list(own.bus.running()) == [("qwen", 0)]


def test_a_delete_of_what_is_not_there_is_refused_in_words(worker: Target) -> None:
    reply = worker.bus.ask("backend.delete", {"backend": "no-such-backend"})
    assert reply["success"] is False
    assert reply["error"]
