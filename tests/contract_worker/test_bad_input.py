import json

import pytest

from tests.contract_worker.target import Target

ANSWERING = (
    *("backend.install", "backend.upgrade", "backend.delete"),
    *("model.unload", "model.stop", "model.delete"),
)
LISTS = ("backend.list", "models.running")
EVENTS = ("backend.stop",)  # `stop` ends the worker whatever it holds
LARGE = 1024 * 1024 - 200  # bytes; NATS carries no more than a megabyte
NONSENSE = {
    "cut short": b'{"backend": "x"',
    "not utf-8": b"\xff\xfe",
    "an array": b"[1, 2]",
    "a number": b"7",
    "wrong types": b'{"backend": 7, "process_key": [], "model_name": {}, "address": true}',
    "deep": b"[" * 50_000,
    "large": json.dumps(
        dict.fromkeys(("backend", "process_key", "model_name"), "x" * (LARGE // 3 - 20))
    ).encode(),
    "large and broken": b"x" * LARGE,
    "a huge number": b'{"backend": "x", "replica_index": ' + b"9" * 5000 + b"}",
}
ESCAPES = ["../../etc", "/etc", "..", ".", "a/../../b", "a\x00b", "", "a\nb"]


@pytest.mark.parametrize("what", NONSENSE)
@pytest.mark.parametrize("path", ANSWERING)
def test_nonsense_is_an_error_reply(worker: Target, path: str, what: str) -> None:
    reply = json.loads(worker.bus.ask_raw(path, NONSENSE[what], within=30))
    assert reply["error"], (path, what)
    assert reply.get("success", False) is False
    assert worker.bus.running() == {}


@pytest.mark.parametrize("what", NONSENSE)
def test_questions_without_content_do_not_care_about_it(worker: Target, what: str) -> None:
    for path in LISTS:
        assert not json.loads(worker.bus.ask_raw(path, NONSENSE[what], within=30)).get("error")


@pytest.mark.parametrize("path", EVENTS)
def test_nonsense_on_an_event_is_ignored(worker: Target, path: str) -> None:
    address = worker.installed("llama")
    for payload in NONSENSE.values():
        worker.bus.tell(path, payload)
    assert list(worker.bus.running()) == [("llama", 0)]
    assert worker.healthy(address)


@pytest.mark.parametrize("name", ESCAPES)
def test_a_name_that_leads_elsewhere_is_refused(worker: Target, name: str) -> None:
    for path, key in (
        *(("backend.install", "backend"), ("backend.upgrade", "backend")),
        *(("backend.delete", "backend"), ("model.delete", "model_name")),
    ):
        reply = worker.bus.ask(path, {key: name, "backend_galleries": worker.galleries})
        assert reply["success"] is False, (path, name)
        assert reply["error"]


@pytest.mark.parametrize("galleries", ["{", "7", '{"a": 1}', '[{"url": 7}]', '["x"]'])
def test_galleries_that_are_none_are_refused(worker: Target, galleries: str) -> None:
    reply = worker.install("llama", backend="x-y", backend_galleries=galleries)
    assert reply["success"] is False
    assert reply["error"]


@pytest.mark.parametrize("index", [-1, 2**31, 1.5, "0", True])
def test_a_replica_that_is_no_index_is_refused(worker: Target, index: object) -> None:
    reply = worker.install("llama", replica_index=index)
    assert reply["success"] is False
    assert worker.bus.running() == {}


def test_unknown_keys_other_cases_and_null_are_read_as_go_reads_them(worker: Target) -> None:
    reply = worker.install("llama", op_id=None, Replica_Index=1, colour="green")
    assert reply["success"] is True, reply
    assert list(worker.bus.running()) == [("llama", 1)]
