import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.contract_worker.controlplane import ControlPlane
from tests.contract_worker.gallery import Galleries, folder
from tests.contract_worker.ours import until
from tests.contract_worker.target import Target, loopback


def test_success_means_that_a_backend_answers_at_the_address(worker: Target) -> None:
    address = worker.installed("llama")
    assert worker.healthy(address)
    assert worker.backend in worker.listed()


def test_asking_again_is_told_the_same_address(worker: Target) -> None:
    first = worker.installed("llama")
    assert worker.installed("llama") == first
    assert list(worker.bus.running()) == [("llama", 0)]


def test_two_replicas_stand_side_by_side(worker: Target) -> None:
    addresses = [worker.installed("llama", replica) for replica in (0, 1)]
    assert len(set(addresses)) == 2
    assert all(map(worker.healthy, addresses))
    assert set(worker.bus.running()) == {("llama", 0), ("llama", 1)}


def test_without_a_model_the_process_has_the_backends_name(worker: Target) -> None:
    worker.installed()
    assert list(worker.bus.running()) == [(worker.backend, 0)]


def test_running_processes_are_listed_by_their_loopback_address(worker: Target) -> None:
    address = worker.installed("llama")
    assert worker.bus.running() == {("llama", 0): loopback(address)}


def test_a_model_name_with_a_number_sign_is_split_at_the_last(worker: Target) -> None:
    worker.installed("a#1", 2)
    assert list(worker.bus.running()) == [("a#1", 2)]


def test_an_unknown_backend_is_refused_in_words(worker: Target) -> None:
    reply = worker.install("llama", backend="no-such-backend")
    assert reply["success"] is False
    assert reply["error"]
    assert not reply.get("address")
    assert worker.bus.running() == {}


@pytest.mark.parametrize("kind", ["folder", "archive", "address"])
def test_a_backend_comes_from_each_kind_of_gallery(
    own: Target, galleries: Galleries, kind: str
) -> None:
    getattr(galleries, f"add_{kind}")("other", version="2.3.4")
    address = own.installed("llama", backend="other")
    assert own.healthy(address)
    row = own.listed()["other"]
    assert row["version"] == "2.3.4"
    assert row["digest"].startswith("sha256:")
    assert (row["is_system"], row["is_meta"]) == (False, False)


def test_a_backend_comes_from_a_uri(own: Target, tmp_path: Path) -> None:
    source = folder(tmp_path / "elsewhere")
    address = own.installed("llama", backend="by-uri", uri=str(source), name="by-uri")
    assert own.healthy(address)


def test_a_file_with_the_wrong_checksum_is_not_installed(own: Target, galleries: Galleries) -> None:
    galleries.add_address("other")
    galleries.spoil("other")
    reply = own.install("llama", backend="other")
    assert reply["success"] is False
    assert "other" not in own.listed()


def test_many_at_once_for_one_key_become_one_process(own: Target, galleries: Galleries) -> None:
    galleries.add_address("other", seconds=1.0)
    with ThreadPoolExecutor(5) as crowd:
        asked = [crowd.submit(own.install, "llama", backend="other") for _ in range(5)]
        replies = [one.result() for one in asked]
    assert {reply["success"] for reply in replies} == {True}
    assert len({reply["address"] for reply in replies}) == 1
    assert list(own.bus.running()) == [("llama", 0)]


def test_progress_is_told_at_most_four_times_a_second_with_a_last_word(
    own: Target, galleries: Galleries
) -> None:
    galleries.add_address("other", seconds=2.0)
    began = time.monotonic()
    with own.bus.progress("op.9") as ticks:
        own.installed("llama", backend="other", op_id="op.9")
    took = time.monotonic() - began
    assert len(ticks) >= 4
    # By the whole: single ones may be held up on their way, and the last comes on top
    assert len(ticks) <= 4 * took + 2
    for tick in ticks:
        assert tick.body["op_id"] == "op.9"
        assert tick.body["node_id"] == own.bus.node_id
        assert tick.body["backend"] == "other"
        assert 0 <= tick.body["percentage"] <= 100
    downloads = [tick.body for tick in ticks if tick.body.get("phase") == "downloading"]
    assert downloads[-1]["percentage"] >= downloads[0]["percentage"]
    numbers = [tick.body["seq"] for tick in ticks if "seq" in tick.body]
    assert numbers == sorted(set(numbers))


def test_without_an_operation_id_nothing_is_told(own: Target, galleries: Galleries) -> None:
    galleries.add_address("other")
    with own.bus.progress("") as ticks:
        own.installed("llama", backend="other")
    assert ticks == []


def test_a_backend_that_dies_at_once_is_refused_with_its_last_words(
    own: Target, galleries: Galleries
) -> None:
    galleries.add_folder("other", manner="dies")
    reply = own.install("llama", backend="other")
    assert reply["success"] is False
    assert "no such accelerator" in reply["error"]
    assert own.bus.running() == {}
    assert own.healthy(own.installed("llama"))


def test_a_backend_that_never_gets_ready_is_refused_and_ended(
    own: Target, galleries: Galleries
) -> None:
    galleries.add_folder("other", manner="never-ready")
    began = time.monotonic()
    reply = own.install("llama", backend="other")
    assert time.monotonic() - began > 25
    assert reply["success"] is False
    assert "warming up, for ever" in reply["error"]
    assert own.process is not None
    until(lambda: own.process is not None and own.process.family() == [])


def test_a_forced_install_fetches_and_starts_anew(
    own: Target, galleries: Galleries, plane: ControlPlane
) -> None:
    galleries.add_address("other")
    own.installed("llama", backend="other")
    fetched = len(plane.served)
    assert own.process is not None
    before = {process.pid for process in own.process.family()}
    address = own.installed("llama", backend="other", force=True)
    assert own.healthy(address)
    assert len(plane.served) > fetched
    assert not before & {process.pid for process in own.process.family()}


def test_a_process_that_crashed_is_started_again_when_asked_for(own: Target) -> None:
    own.installed("llama")
    assert own.process is not None
    for process in own.process.family():
        process.kill()
    until(lambda: own.bus.running() == {})
    assert own.healthy(own.installed("llama"))
