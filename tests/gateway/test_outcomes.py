"""What every question has in common: refused, nobody there, no answer yet."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

import pytest

from clustermgr.conf import ClusterSettings
from clustermgr.lib.bus import Quiet
from clustermgr.lib.bus.exchange import OnEvent
from clustermgr.lib.errors import BusError, NodeRefused, NodeSilent, NodeUnreachable
from nodes.gateway import NodeGateway
from nodes.wire import Subject, subjects
from tests.scripted import ScriptedWorker
from tests.services import until

Ask = Callable[[NodeGateway, UUID], object]

QUESTIONS: dict[str, tuple[Subject, Ask]] = {
    "install": (subjects.INSTALL, lambda gate, node: gate.install(node, backend="llama-cpp")),
    "upgrade": (subjects.UPGRADE, lambda gate, node: gate.upgrade(node, backend="llama-cpp")),
    "delete": (subjects.DELETE_BACKEND, lambda gate, node: gate.delete(node, backend="llama-cpp")),
    "list": (subjects.LIST_BACKENDS, lambda gate, node: gate.list_backends(node)),
    "running": (subjects.RUNNING_MODELS, lambda gate, node: gate.running_models(node)),
    "unload": (
        subjects.UNLOAD_MODEL,
        lambda gate, node: gate.unload(node, model_name="qwen3", address="10.0.0.7:50052"),
    ),
    "stop_model": (
        subjects.STOP_MODEL,
        lambda gate, node: gate.stop_model(
            node, model_name="qwen3", replica_index=1, address="10.0.0.7:50052"
        ),
    ),
    "delete_model": (
        subjects.DELETE_MODEL,
        lambda gate, node: gate.delete_model(node, model_name="qwen3"),
    ),
}
every_question = pytest.mark.parametrize(("subject", "ask"), QUESTIONS.values(), ids=QUESTIONS)


@every_question
def test_nobody_there(gateway: NodeGateway, subject: Subject, ask: Ask) -> None:
    with pytest.raises(NodeUnreachable):
        ask(gateway, UUID(int=1))


@every_question
def test_no_answer_yet(
    impatient: NodeGateway, worker: ScriptedWorker, subject: Subject, ask: Ask
) -> None:
    worker.listens(subject)
    with pytest.raises(NodeSilent):
        ask(impatient, worker.node_id)
    until(lambda: bool(worker.heard))
    assert [path for path, _ in worker.heard] == [subject.path]


@every_question
@pytest.mark.parametrize("reply", [b"", b"{", b"[]", b'"yes"', b"\xff", b'{"error":7}'])
def test_an_unreadable_answer_is_a_refusal_in_a_sentence(
    gateway: NodeGateway, worker: ScriptedWorker, subject: Subject, ask: Ask, reply: bytes
) -> None:
    worker.answers(subject, reply)
    with pytest.raises(NodeRefused, match=r"The worker's answer to .* is unreadable: "):
        ask(gateway, worker.node_id)


@pytest.mark.parametrize(
    ("subject", "ask"), [QUESTIONS[name] for name in QUESTIONS if name != "stop_model"]
)
def test_refused_in_the_workers_words(
    gateway: NodeGateway, worker: ScriptedWorker, subject: Subject, ask: Ask
) -> None:
    worker.answers(subject, b'{"success":false,"error":"disk is full"}')
    with pytest.raises(NodeRefused, match=r"^disk is full$"):
        ask(gateway, worker.node_id)


def test_refused_without_a_word(gateway: NodeGateway, worker: ScriptedWorker) -> None:
    worker.answers(subjects.INSTALL, b"{}")
    with pytest.raises(NodeRefused, match="gave no reason"):
        gateway.install(worker.node_id, backend="llama-cpp")


def test_long_words_lose_their_middle(gateway: NodeGateway, worker: ScriptedWorker) -> None:
    noise = b"x" * 100_000
    worker.answers(subjects.INSTALL, b'{"error":"no GPU:\\n' + noise + b'\\u0000\\nCUDA error 35"}')
    with pytest.raises(NodeRefused) as refusal:
        gateway.install(worker.node_id, backend="llama-cpp")
    words = str(refusal.value)
    assert len(words) == 2000
    assert words.startswith("no GPU:\nxxx")
    assert words.endswith("xxx\nCUDA error 35")


def test_an_answer_that_comes_too_late_is_not_taken_for_the_next_one(
    impatient: NodeGateway, gateway: NodeGateway, worker: ScriptedWorker
) -> None:
    worker.listens(subjects.LIST_BACKENDS)
    with pytest.raises(NodeSilent):
        impatient.list_backends(worker.node_id)
    until(lambda: bool(worker.heard))
    worker.answers_late(b'{"backends":null}')
    worker.answers(subjects.RUNNING_MODELS, b'{"models":[{"model_id":"qwen3"}]}')
    assert len(gateway.running_models(worker.node_id)) == 1


@dataclass
class Stopwatch:
    """A bus that only notes how long it may wait."""

    waited: timedelta = timedelta()

    def request(
        self,
        subject: str,
        payload: bytes,
        *,
        timeout: timedelta,
        events: str | None = None,
        on_event: OnEvent | None = None,
        quiet: Quiet | None = None,
    ) -> bytes:
        self.waited = timeout
        raise NodeSilent("No answer yet.")

    def request_each(
        self, subjects: Sequence[str], payload: bytes, *, timeout: timedelta
    ) -> list[bytes | BusError]:
        self.waited = timeout
        return []

    def publish(self, subject: str, payload: bytes) -> None:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        ("install", 900),
        ("upgrade", 900),
        ("delete", 120),
        ("list", 30),
        ("running", 10),
        ("unload", 30),
        ("stop_model", 25),
        ("delete_model", 30),
    ],
)
def test_each_question_has_its_own_patience(name: str, seconds: int) -> None:
    bus = Stopwatch()
    with pytest.raises(NodeSilent):
        QUESTIONS[name][1](NodeGateway(bus, cluster=ClusterSettings()), UUID(int=1))
    assert bus.waited == timedelta(seconds=seconds)
