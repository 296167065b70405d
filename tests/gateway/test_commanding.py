import json
from dataclasses import replace
from datetime import timedelta

import pytest
from django.conf import settings

from clustermgr.lib.bus import NatsBus
from clustermgr.lib.errors import InvalidInput, NodeRefused, NodeSilent, NodeUnreachable
from nodes.gateway import NodeGateway
from nodes.outcomes import Deleted, ExactStop, RefusedAfterStopping
from nodes.wire import InstalledBackend, ProcessKey, RunningModel, subjects
from tests.scripted import ScriptedWorker

OK = b'{"success":true}'


def test_a_delete_tells_which_processes_it_stopped(
    gateway: NodeGateway, worker: ScriptedWorker
) -> None:
    worker.answers(
        subjects.DELETE_BACKEND,
        b'{"success":true,"stopped_process_keys":["qwen3#1"],"reports_stopped_processes":true}',
    )
    assert gateway.delete(worker.node_id, backend="llama-cpp") == Deleted(
        stopped=(ProcessKey(model_id="qwen3", replica_index=1),), reports_stopped=True
    )
    assert worker.payload() == b'{"backend":"llama-cpp"}'


def test_a_failed_delete_still_tells_what_it_stopped(
    gateway: NodeGateway, worker: ScriptedWorker
) -> None:
    worker.answers(
        subjects.DELETE_BACKEND,
        b'{"success":false,"error":"busy","stopped_process_keys":null,'
        b'"reports_stopped_processes":true}',
    )
    with pytest.raises(RefusedAfterStopping, match=r"^busy$") as refusal:
        gateway.delete(worker.node_id, backend="llama-cpp")
    assert refusal.value.stopped == ()


@pytest.mark.parametrize(
    ("answer", "cancelled"),
    [
        (b'{"cancelled":true}', True),
        (b'{"cancelled":false,"error":"operation op-9 is past its download"}', False),
    ],
)
def test_a_download_is_given_up_unless_it_is_too_late(
    gateway: NodeGateway, worker: ScriptedWorker, answer: bytes, cancelled: bool
) -> None:
    worker.answers(subjects.CANCEL, answer)
    assert gateway.cancel(worker.node_id, op_id="op-9") is cancelled
    assert worker.payload() == b'{"op_id":"op-9"}'


def test_a_worker_that_cannot_cancel_is_not_asked_in_vain(
    gateway: NodeGateway, worker: ScriptedWorker
) -> None:
    worker.answers(subjects.INSTALL, OK)
    with pytest.raises(NodeUnreachable):
        gateway.cancel(worker.node_id, op_id="op-9")
    with pytest.raises(InvalidInput, match=r"^op_id is required"):
        gateway.cancel(worker.node_id, op_id=" ")


def test_a_worker_lists_what_it_has(gateway: NodeGateway, worker: ScriptedWorker) -> None:
    worker.answers(
        subjects.LIST_BACKENDS,
        b'{"backends":[{"name":"llama-cpp","is_system":false,"is_meta":true,"version":"1.2"}]}',
    )
    assert gateway.list_backends(worker.node_id) == (
        InstalledBackend(name="llama-cpp", is_system=False, is_meta=True, version="1.2"),
    )
    assert worker.payload() == b"{}"


def test_a_worker_without_backends_says_null(gateway: NodeGateway, worker: ScriptedWorker) -> None:
    worker.answers(subjects.LIST_BACKENDS, b'{"backends":null}')
    assert gateway.list_backends(worker.node_id) == ()


def test_many_are_asked_at_once_and_each_has_its_own_outcome(
    bus: NatsBus, worker: ScriptedWorker
) -> None:
    briefly = replace(settings.CLUSTER, list_timeout=timedelta(seconds=3))
    worker.answers(subjects.LIST_BACKENDS, b'{"backends":[{"name":"llama-cpp"}]}')
    with ScriptedWorker() as broken, ScriptedWorker() as hung, ScriptedWorker() as away:
        broken.answers(subjects.LIST_BACKENDS, b'{"error":"disk is gone"}')
        hung.listens(subjects.LIST_BACKENDS)
        nodes = [worker.node_id, broken.node_id, hung.node_id, away.node_id]
        told = NodeGateway(bus, cluster=briefly).list_backends_of(nodes)
    assert list(told) == nodes
    assert told[worker.node_id] == (
        InstalledBackend(name="llama-cpp", is_system=False, is_meta=False),
    )
    assert [type(told[node]) for node in nodes[1:]] == [NodeRefused, NodeSilent, NodeUnreachable]
    assert str(told[broken.node_id]) == "disk is gone"


def test_a_worker_lists_what_it_runs(gateway: NodeGateway, worker: ScriptedWorker) -> None:
    worker.answers(
        subjects.RUNNING_MODELS,
        b'{"models":[{"model_id":"qwen3","replica_index":1,"address":"127.0.0.1:50052"}]}',
    )
    assert gateway.running_models(worker.node_id) == (
        RunningModel(model_id="qwen3", replica_index=1),
    )
    assert worker.payload() == b"{}"


@pytest.mark.parametrize("error", ["supervisor is gone", " ", "\\u0000"])
def test_a_worker_that_cannot_tell_is_not_an_empty_machine(
    gateway: NodeGateway, worker: ScriptedWorker, error: str
) -> None:
    worker.answers(subjects.RUNNING_MODELS, f'{{"models":[],"error":"{error}"}}'.encode())
    worker.answers(subjects.LIST_BACKENDS, f'{{"backends":null,"error":"{error}"}}'.encode())
    with pytest.raises(NodeRefused):
        gateway.running_models(worker.node_id)
    with pytest.raises(NodeRefused):
        gateway.list_backends(worker.node_id)


@pytest.mark.parametrize(
    ("force", "payload"),
    [(False, {"backend": "qwen3#1"}), (True, {"backend": "qwen3#1", "force": True})],
)
def test_one_thing_is_stopped_without_waiting_for_an_answer(
    gateway: NodeGateway, worker: ScriptedWorker, force: bool, payload: dict[str, object]
) -> None:
    worker.listens(subjects.STOP_BACKEND)
    gateway.stop_backend(worker.node_id, backend="qwen3#1", force=force)
    assert json.loads(worker.payload()) == payload


@pytest.mark.parametrize(
    ("force", "payload"), [(False, b"null"), (True, b'{"backend":"","force":true}')]
)
def test_everything_is_stopped_by_the_bytes_that_workers_expect(
    gateway: NodeGateway, worker: ScriptedWorker, force: bool, payload: bytes
) -> None:
    worker.listens(subjects.STOP_BACKEND)
    gateway.stop_everything(worker.node_id, force=force)
    assert worker.payload() == payload


def test_a_node_is_told_to_leave(gateway: NodeGateway, worker: ScriptedWorker) -> None:
    worker.listens(subjects.STOP_NODE)
    gateway.stop_node(worker.node_id)
    assert worker.payload() == b"null"


def test_telling_a_node_that_is_away_is_not_an_error(
    gateway: NodeGateway, worker: ScriptedWorker
) -> None:
    gateway.stop_node(worker.node_id)
    gateway.stop_everything(worker.node_id)


def test_memory_is_freed_at_an_address(gateway: NodeGateway, worker: ScriptedWorker) -> None:
    worker.answers(subjects.UNLOAD_MODEL, OK)
    gateway.unload(worker.node_id, model_name="qwen3", address="10.0.0.7:50052")
    assert json.loads(worker.payload()) == {"model_name": "qwen3", "address": "127.0.0.1:50052"}


BAD_ADDRESSES = ["", "10.0.0.7", "10.0.0.7:", "10.0.0.7:x", "10.0.0.7:0", "h:65536", "h:²", "h:-1"]


@pytest.mark.parametrize("address", BAD_ADDRESSES)
def test_without_an_address_nothing_is_sent(
    gateway: NodeGateway, worker: ScriptedWorker, address: str
) -> None:
    worker.answers(subjects.UNLOAD_MODEL, OK)
    worker.answers(subjects.STOP_MODEL, OK)
    with pytest.raises(InvalidInput, match="must end in its port"):
        gateway.unload(worker.node_id, model_name="qwen3", address=address)
    with pytest.raises(InvalidInput, match="must end in its port"):
        gateway.stop_model(worker.node_id, model_name="qwen3", replica_index=0, address=address)
    assert worker.heard == []


@pytest.mark.parametrize("stored", ["10.0.0.7:50052", "gpu-a:50052", "[fd00::7]:50052"])
def test_the_exact_stop_names_the_process_by_its_loopback_address(
    gateway: NodeGateway, worker: ScriptedWorker, stored: str
) -> None:
    worker.answers(
        subjects.STOP_MODEL,
        b'{"matched":true,"freed":true,"terminated":true,"process_key":"qwen3#1"}',
    )
    outcome = gateway.stop_model(
        worker.node_id,
        model_name="qwen3",
        replica_index=1,
        address=stored,
        config_revision="r7",
    )
    assert outcome == ExactStop(matched=True, freed=True, terminated=True, error="")
    assert json.loads(worker.payload()) == {
        "model_name": "qwen3",
        "process_key": "qwen3#1",
        "expected_address": "127.0.0.1:50052",
        "config_revision": "r7",
    }


def test_an_exact_stop_that_was_not_done_says_why(
    gateway: NodeGateway, worker: ScriptedWorker
) -> None:
    worker.answers(
        subjects.STOP_MODEL,
        b'{"matched":true,"freed":false,"terminated":false,"process_key":"qwen3#1",'
        b'"error":"process is already stopping"}',
    )
    assert gateway.stop_model(
        worker.node_id, model_name="qwen3", replica_index=1, address="10.0.0.7:50052"
    ) == ExactStop(matched=True, freed=False, terminated=False, error="process is already stopping")


def test_a_models_files_are_removed(gateway: NodeGateway, worker: ScriptedWorker) -> None:
    worker.answers(subjects.DELETE_MODEL, OK)
    gateway.delete_model(worker.node_id, model_name="qwen3")
    assert worker.payload() == b'{"model_name":"qwen3"}'


@pytest.mark.parametrize("name", ["", " "])
def test_a_model_without_a_name_is_refused_before_anything_is_sent(
    gateway: NodeGateway, worker: ScriptedWorker, name: str
) -> None:
    worker.answers(subjects.DELETE_MODEL, OK)
    with pytest.raises(InvalidInput, match=r"^model_name is required"):
        gateway.delete_model(worker.node_id, model_name=name)
    assert worker.heard == []
