import json
import threading
from dataclasses import replace
from datetime import timedelta
from itertools import count

import pytest
from django.conf import settings

from clustermgr.lib.bus import NatsBus
from clustermgr.lib.errors import InvalidInput, NodeRefused, NodeSilent, NodeUnreachable
from nodes.gateway import NodeGateway
from nodes.outcomes import Installed, RefusedAfterStopping, Upgraded
from nodes.wire import Gallery, InstallProgress, ProcessKey, subjects
from tests.scripted import ScriptedWorker
from tests.services import until

RUNS = b'{"success":true,"address":"10.0.0.7:50052"}'


def tick(percentage: float, *, op_id: str = "op-9", phase: str = "", seq: int = 0) -> bytes:
    progress = InstallProgress(
        op_id=op_id,
        node_id="n",
        backend="llama-cpp",
        percentage=percentage,
        phase=phase,
        seq=seq,
    )
    return progress.encode()


@pytest.fixture
def unhurried(bus: NatsBus) -> NodeGateway:
    """Sees a second pass between any two looks at the clock."""
    return NodeGateway(bus, clock=count().__next__)


def test_an_install_says_all_it_was_told_and_returns_the_address(
    gateway: NodeGateway, worker: ScriptedWorker
) -> None:
    worker.answers(subjects.INSTALL, RUNS)
    outcome = gateway.install(
        worker.node_id,
        backend="llama-cpp",
        model_id="qwen3",
        replica_index=1,
        galleries=[Gallery(url="https://g", name="localai")],
        uri="oci://x",
        name="llama-cpp",
        alias="llama",
        force=True,
        op_id="op-9",
    )
    assert outcome == Installed(address="10.0.0.7:50052")
    assert json.loads(worker.payload()) == {
        "backend": "llama-cpp",
        "model_id": "qwen3",
        "backend_galleries": '[{"url":"https://g","name":"localai"}]',
        "uri": "oci://x",
        "name": "llama-cpp",
        "alias": "llama",
        "replica_index": 1,
        "force": True,
        "op_id": "op-9",
    }


def test_an_old_worker_tells_no_address(gateway: NodeGateway, worker: ScriptedWorker) -> None:
    worker.answers(subjects.INSTALL, b'{"success":true}')
    assert gateway.install(worker.node_id, backend="llama-cpp") == Installed(address="")


def test_progress_comes_in_order_on_this_thread_and_before_the_answer(
    unhurried: NodeGateway, worker: ScriptedWorker
) -> None:
    worker.answers(subjects.INSTALL, RUNS, progress=[tick(step) for step in range(50)])
    seen: list[tuple[float, int]] = []

    def note(progress: InstallProgress) -> None:
        seen.append((progress.percentage, threading.get_ident()))

    unhurried.install(worker.node_id, backend="llama-cpp", op_id="op-9", on_progress=note)
    assert seen == [(float(step), threading.get_ident()) for step in range(50)]


def test_a_burst_is_thinned_out_and_its_last_tick_comes_through(
    bus: NatsBus, worker: ScriptedWorker
) -> None:
    worker.answers(subjects.INSTALL, RUNS, progress=[tick(step) for step in range(50)])
    seen: list[float] = []
    NodeGateway(bus, clock=lambda: 0.0).install(
        worker.node_id,
        backend="llama-cpp",
        op_id="op-9",
        on_progress=lambda progress: seen.append(progress.percentage),
    )
    assert seen == [0, 49]


def test_the_last_tick_is_shown_even_if_the_answer_does_not_come(
    bus: NatsBus, worker: ScriptedWorker
) -> None:
    briefly = replace(settings.CLUSTER, install_timeout=timedelta(seconds=3))
    worker.answers(subjects.INSTALL, None, progress=[tick(1), tick(2), tick(3)])
    seen: list[float] = []
    with pytest.raises(NodeSilent):
        NodeGateway(bus, cluster=briefly, clock=lambda: 0.0).install(
            worker.node_id,
            backend="llama-cpp",
            op_id="op-9",
            on_progress=lambda progress: seen.append(progress.percentage),
        )
    assert seen == [1, 3]


def test_progress_that_is_late_foreign_or_nonsense_is_not_shown(
    unhurried: NodeGateway, worker: ScriptedWorker
) -> None:
    events = [tick(40), tick(30), b"{", b'{"percentage":"half"}', tick(50, op_id="op.9"), tick(60)]
    worker.answers(subjects.INSTALL, RUNS, progress=events)
    seen: list[float] = []
    unhurried.install(
        worker.node_id,
        backend="llama-cpp",
        op_id="op-9",
        on_progress=lambda progress: seen.append(progress.percentage),
    )
    assert seen == [40, 60]


def test_nobody_listens_to_progress_without_an_operation(
    gateway: NodeGateway, worker: ScriptedWorker
) -> None:
    worker.answers(subjects.INSTALL, RUNS)
    seen: list[InstallProgress] = []
    gateway.install(worker.node_id, backend="llama-cpp", on_progress=seen.append)
    assert seen == []
    assert worker.payload() == b'{"backend":"llama-cpp"}'


@pytest.mark.parametrize("backend", ["", "  "])
def test_a_backend_without_a_name_is_refused_before_anything_is_sent(
    gateway: NodeGateway, worker: ScriptedWorker, backend: str
) -> None:
    for subject in (subjects.INSTALL, subjects.UPGRADE, subjects.DELETE_BACKEND):
        worker.answers(subject, RUNS)
    for ask in (gateway.install, gateway.upgrade, gateway.delete, gateway.stop_backend):
        with pytest.raises(InvalidInput, match=r"^backend is required"):
            ask(worker.node_id, backend=backend)
    assert worker.heard == []


def test_an_upgrade_tells_which_processes_it_stopped(
    unhurried: NodeGateway, worker: ScriptedWorker
) -> None:
    worker.answers(
        subjects.UPGRADE,
        b'{"success":true,"stopped_process_keys":["a#b#2","what"],'
        b'"reports_stopped_processes":true}',
        progress=[tick(1), tick(100)],
    )
    seen: list[float] = []
    outcome = unhurried.upgrade(
        worker.node_id,
        backend="llama-cpp",
        op_id="op-9",
        on_progress=lambda progress: seen.append(progress.percentage),
    )
    assert outcome == Upgraded(
        stopped=(ProcessKey(model_id="a#b", replica_index=2),), reports_stopped=True
    )
    assert seen == [1, 100]


def test_a_list_of_stopped_processes_without_the_promise_means_nothing(
    gateway: NodeGateway, worker: ScriptedWorker
) -> None:
    worker.answers(subjects.UPGRADE, b'{"success":true,"stopped_process_keys":["a#0"]}')
    assert gateway.upgrade(worker.node_id, backend="llama-cpp") == Upgraded(
        stopped=(), reports_stopped=False
    )


def test_a_failed_upgrade_still_tells_what_it_stopped(
    gateway: NodeGateway, worker: ScriptedWorker
) -> None:
    worker.answers(
        subjects.UPGRADE,
        b'{"success":false,"error":"no space","stopped_process_keys":["a#0"],'
        b'"reports_stopped_processes":true}',
    )
    with pytest.raises(RefusedAfterStopping, match=r"^no space$") as refusal:
        gateway.upgrade(worker.node_id, backend="llama-cpp")
    assert refusal.value.stopped == (ProcessKey(model_id="a", replica_index=0),)


def test_an_old_worker_is_upgraded_by_a_forced_install(
    unhurried: NodeGateway, worker: ScriptedWorker
) -> None:
    worker.answers(subjects.INSTALL, RUNS, progress=[tick(7)])
    seen: list[float] = []
    outcome = unhurried.upgrade(
        worker.node_id,
        backend="llama-cpp",
        replica_index=1,
        galleries=[Gallery(url="https://g", name="localai")],
        op_id="op-9",
        on_progress=lambda progress: seen.append(progress.percentage),
    )
    assert outcome == Upgraded(stopped=(), reports_stopped=False, fell_back=True)
    assert json.loads(worker.payload()) == {
        "backend": "llama-cpp",
        "backend_galleries": '[{"url":"https://g","name":"localai"}]',
        "replica_index": 1,
        "force": True,
        "op_id": "op-9",
    }
    assert seen == [7]


def test_a_node_that_is_away_is_away_after_the_fallback_too(
    gateway: NodeGateway, worker: ScriptedWorker
) -> None:
    with pytest.raises(NodeUnreachable, match=r"backend\.install"):
        gateway.upgrade(worker.node_id, backend="llama-cpp")


def test_only_no_responders_leads_to_the_fallback(
    impatient: NodeGateway, worker: ScriptedWorker
) -> None:
    worker.answers(subjects.INSTALL, RUNS)
    worker.listens(subjects.UPGRADE)
    with pytest.raises(NodeSilent):
        impatient.upgrade(worker.node_id, backend="llama-cpp")
    until(lambda: bool(worker.heard))
    assert [path for path, _ in worker.heard] == ["backend.upgrade"]


def test_a_refused_fallback_is_a_refusal(gateway: NodeGateway, worker: ScriptedWorker) -> None:
    worker.answers(subjects.INSTALL, b'{"success":false,"error":"no such backend"}')
    with pytest.raises(NodeRefused, match="no such backend"):
        gateway.upgrade(worker.node_id, backend="llama-cpp")
