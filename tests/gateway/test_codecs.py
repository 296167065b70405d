"""Laws that hold for every message, whatever is in it."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustermgr.lib.errors import InvalidInput, NodeRefused
from nodes.wire import (
    MAX_WORDS,
    CancelReply,
    CancelRequest,
    DeleteModelRequest,
    DeleteRequest,
    Gallery,
    InstalledBackend,
    InstallProgress,
    InstallReply,
    InstallRequest,
    ListReply,
    ModelStopReply,
    ModelStopRequest,
    PlainReply,
    RunningModel,
    RunningReply,
    StoppingReply,
    StopRequest,
    UnloadRequest,
    UpgradeRequest,
    Verification,
)
from tests.gateway.samples import OURS, Message, golden
from tests.nodes.test_wire_register import JSON

REPLIES = [InstallReply, StoppingReply, PlainReply, ModelStopReply, ListReply, RunningReply]
WORKER_SAYS: list[type[Any]] = [*REPLIES, CancelReply, InstallProgress]
WE_SAY: list[type[Any]] = [
    InstallRequest,
    UpgradeRequest,
    StopRequest,
    DeleteRequest,
    CancelRequest,
    UnloadRequest,
    ModelStopRequest,
    DeleteModelRequest,
]

TEXT = st.text(st.characters(categories=["L", "N", "P", "S"], codec="utf-8"), max_size=40)
NAMES = TEXT.filter(bool)
INDEX = st.integers(0, 2**31 - 1)
SIGNED = st.builds(Verification, issuer=NAMES, identity=TEXT, identity_regex=TEXT)
GALLERIES = st.lists(
    st.builds(
        Gallery,
        url=TEXT,
        name=TEXT,
        mirrors=st.lists(TEXT, max_size=3).map(tuple),
        verification=st.none() | SIGNED,
    ),
    max_size=3,
).map(tuple)
ARTIFACT: dict[str, st.SearchStrategy[Any]] = {
    "backend": TEXT,
    "backend_galleries": GALLERIES,
    "uri": TEXT,
    "name": TEXT,
    "alias": TEXT,
    "replica_index": INDEX,
    "op_id": TEXT,
}
BACKENDS = st.builds(
    InstalledBackend,
    name=NAMES,
    is_system=st.booleans(),
    is_meta=st.booleans(),
    installed_at=TEXT,
    gallery_url=TEXT,
    version=TEXT,
    uri=TEXT,
    digest=TEXT,
)
PROCESSES = st.builds(RunningModel, model_id=NAMES, replica_index=INDEX, address=TEXT)
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(InstallRequest, model_id=TEXT, force=st.booleans(), **ARTIFACT),
    st.builds(UpgradeRequest, **ARTIFACT),
    st.builds(StopRequest, backend=TEXT, force=st.booleans()),
    st.builds(DeleteRequest, backend=TEXT),
    st.builds(CancelRequest, op_id=TEXT),
    st.builds(CancelReply, cancelled=st.booleans(), error=TEXT),
    st.builds(UnloadRequest, model_name=TEXT, address=TEXT),
    st.builds(
        ModelStopRequest,
        model_name=TEXT,
        process_key=TEXT,
        expected_address=TEXT,
        force=st.booleans(),
        config_revision=TEXT,
    ),
    st.builds(DeleteModelRequest, model_name=TEXT),
    st.builds(InstallReply, success=st.booleans(), address=TEXT, error=TEXT),
    st.builds(
        StoppingReply,
        success=st.booleans(),
        error=TEXT,
        stopped_process_keys=st.lists(TEXT, max_size=3).map(tuple),
        reports_stopped_processes=st.booleans(),
    ),
    st.builds(PlainReply, success=st.booleans(), error=TEXT),
    st.builds(
        ModelStopReply,
        matched=st.booleans(),
        freed=st.booleans(),
        terminated=st.booleans(),
        process_key=TEXT,
        address=TEXT,
        error=TEXT,
    ),
    st.builds(ListReply, backends=st.lists(BACKENDS, max_size=3).map(tuple)),
    st.builds(RunningReply, models=st.lists(PROCESSES, max_size=3).map(tuple)),
    st.builds(
        InstallProgress,
        op_id=TEXT,
        node_id=TEXT,
        backend=TEXT,
        percentage=st.floats(),
        file_name=TEXT,
        current=TEXT.map(lambda text: text[:32]),
        phase=st.sampled_from(["", "downloading"]),
        seq=st.integers(0, 2**64 - 1),
    ),
)
KEYS = sorted({key for name in OURS for key in (json.loads(golden(name)) or {})} | {"Success", "x"})
BODIES = st.dictionaries(st.sampled_from(KEYS), JSON) | JSON
PAYLOADS = st.binary() | BODIES.map(lambda body: json.dumps(body).encode())


@given(MESSAGES)
def test_what_was_encoded_is_read_back_whole(message: Message) -> None:
    assert repr(type(message).decode(message.encode())) == repr(message)


@pytest.mark.parametrize("kind", WORKER_SAYS)
@given(payload=PAYLOADS)
def test_no_bytes_from_a_worker_are_more_than_a_refusal(kind: type[Any], payload: bytes) -> None:
    try:
        told = kind.decode(payload)
    except NodeRefused:
        return
    assert len(getattr(told, "error", "")) <= MAX_WORDS
    assert 0 <= getattr(told, "percentage", 0) <= 100


@pytest.mark.parametrize("kind", WE_SAY)
@given(payload=PAYLOADS)
def test_no_bytes_to_a_worker_are_more_than_invalid_input(kind: type[Any], payload: bytes) -> None:
    with suppress(InvalidInput):
        kind.decode(payload)


@pytest.mark.parametrize(
    "payload", [b"[" * 100_000, b'{"a":' * 100_000, b'{"error":"\xff"}', b"9" * 9999]
)
@pytest.mark.parametrize("kind", WORKER_SAYS)
def test_bytes_made_to_hurt_are_refused(kind: type[Any], payload: bytes) -> None:
    with pytest.raises(NodeRefused):
        kind.decode(payload)


@pytest.mark.parametrize(
    "body",
    [
        {"success": "true"},
        {"success": 1},
        {"success": True, "address": 7},
        {"success": True, "address": "a" * 513},
        {"success": True, "error": ["x"]},
        [],
    ],
)
def test_a_wrong_type_refuses_the_reply(body: Any) -> None:
    with pytest.raises(NodeRefused, match=r"backend\.install is unreadable"):
        InstallReply.decode(json.dumps(body).encode())


def test_null_absent_and_unknown_keys_do_no_harm() -> None:
    body = b'{"SUCCESS":true,"address":null,"error":null,"shoe_size":44}'
    assert InstallReply.decode(body) == InstallReply(success=True)


@pytest.mark.parametrize(
    "payload",
    [
        b"{}",
        b'{"backends":{}}',
        b'{"backends":[{"is_meta":true}]}',
        b'{"backends":[7]}',
        b'{"backends":[{"name":"a","is_meta":"yes"}]}',
    ],
)
def test_half_a_list_of_backends_is_no_evidence_of_absence(payload: bytes) -> None:
    with pytest.raises(NodeRefused):
        ListReply.decode(payload)


@pytest.mark.parametrize("galleries", ["{", "{}", "7", "[7]", '[{"url":7}]', '[{"mirrors":"m"}]'])
def test_galleries_that_cannot_be_read_are_refused(galleries: str) -> None:
    body = {"backend": "a", "backend_galleries": galleries}
    with pytest.raises(InvalidInput):
        InstallRequest.decode(json.dumps(body).encode())


@pytest.mark.parametrize("index", [-1, 2**31, 1.0, True, "1"])
def test_a_slot_is_a_whole_number_of_31_bits(index: Any) -> None:
    body = {"backend": "a", "replica_index": index}
    with pytest.raises(InvalidInput, match="replica_index"):
        InstallRequest.decode(json.dumps(body).encode())


@pytest.mark.parametrize("payload", [b"", b"null", b"{}", b'{"backend":null}', b'{"backend":""}'])
def test_everything_is_stopped_by_any_of_the_accepted_shapes(payload: bytes) -> None:
    assert StopRequest.decode(payload) == StopRequest(backend="")


@pytest.mark.parametrize("payload", [b"{", b"all", b"7", b'{"backend":7}', b"[]"])
def test_a_malformed_stop_is_not_taken_for_stopping_everything(payload: bytes) -> None:
    with pytest.raises(InvalidInput):
        StopRequest.decode(payload)


@pytest.mark.parametrize(
    ("given_number", "percentage"),
    [
        (float("nan"), 0),
        (float("inf"), 0),
        (float("-inf"), 0),
        (-3, 0),
        (250, 100),
        (99.9, 99.9),
        (7, 7),
    ],
)
def test_a_percentage_is_one(given_number: float, percentage: float) -> None:
    tick = InstallProgress(op_id="o", node_id="n", backend="b", percentage=given_number)
    assert tick.percentage == percentage
    assert InstallProgress.decode(tick.encode()) == tick


@given(st.lists(BACKENDS, max_size=3).map(tuple))
def test_a_plain_list_is_read_as_an_unusual_one_is(backends: tuple[InstalledBackend, ...]) -> None:
    payload = ListReply(backends=backends).encode()
    unusual = payload.replace(b"{", b'{"from_the_future":1,', 1)
    assert ListReply.decode(payload) == ListReply.decode(unusual) == ListReply(backends=backends)


@pytest.mark.parametrize("name", ["", "a\\u0000", "a\x7f", "a\\u202e", "a" * 256, "é" * 128])
def test_no_list_is_so_plain_that_its_names_go_unchecked(name: str) -> None:
    with pytest.raises(NodeRefused):
        ListReply.decode(f'{{"backends":[{{"name":"{name}"}}]}}'.encode())


def test_keys_in_another_case_are_not_lost_in_a_plain_list() -> None:
    [backend] = ListReply.decode(b'{"backends":[{"name":"a","Version":"7"}]}').backends
    assert backend.version == "7"
