"""The worker's codecs and the manager's read and write the same bytes."""

import json
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodes.wire import subjects as theirs
from tests.gateway.samples import OURS, THEIRS, golden
from worker.machine import Gallery
from worker.wire import replies, requests, subjects
from worker.wire.reading import BadMessage

REPLIES: dict[str, type[replies.Reply]] = {
    "install.reply": replies.InstallReply,
    "install.reply.failed": replies.InstallReply,
    "upgrade.reply": replies.StoppingReply,
    "upgrade.reply.failed": replies.StoppingReply,
    "cancel.reply": replies.CancelReply,
    "cancel.reply.late": replies.CancelReply,
    "delete.reply": replies.StoppingReply,
    "list.reply": replies.ListReply,
    "running.reply": replies.RunningReply,
    "running.reply.idle": replies.RunningReply,
    "model-stop.reply": replies.ModelStopReply,
    "model-stop.reply.unknown": replies.ModelStopReply,
    "model-stop.reply.mismatch": replies.ModelStopReply,
    "unload.reply": replies.PlainReply,
    "model-delete.reply.failed": replies.PlainReply,
    "progress": replies.Progress,
}
REQUESTS: dict[str, type[Any]] = {
    "install.request": requests.InstallRequest,
    "install.request.least": requests.InstallRequest,
    "install.request.external": requests.InstallRequest,
    "theirs.install.request.odd-case": requests.InstallRequest,
    "upgrade.request": requests.UpgradeRequest,
    "upgrade.request.least": requests.UpgradeRequest,
    "cancel.request": requests.CancelRequest,
    "stop.one": requests.StopRequest,
    "stop.one.forced": requests.StopRequest,
    "stop.all": requests.StopRequest,
    "stop.all.forced": requests.StopRequest,
    "theirs.stop.all.empty-object": requests.StopRequest,
    "delete.request": requests.DeleteRequest,
    "unload.request": requests.UnloadRequest,
    "theirs.unload.request.arbitrary": requests.UnloadRequest,
    "model-stop.request": requests.ModelStopRequest,
    "model-stop.request.forced": requests.ModelStopRequest,
    "model-delete.request": requests.DeleteModelRequest,
}
SAMPLES = OURS | THEIRS


@pytest.mark.parametrize("name", REPLIES)
def test_a_reply_has_the_agreed_bytes(name: str) -> None:
    reply = msgspec.json.decode(golden(name), type=REPLIES[name])
    assert reply.encode() == golden(name)


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_says_to_the_worker_what_the_manager_meant(name: str) -> None:
    read = REQUESTS[name].decode(golden(name))
    meant = SAMPLES[name]
    for field in read.__struct_fields__:
        if field != "backend_galleries":  # compared below, in the words of the machine
            assert getattr(read, field) == getattr(meant, field)


def test_every_message_between_the_two_is_compared() -> None:
    # What managers tell each other is none of a worker's business
    told = {name for name in OURS if not name.startswith("prefix.")}
    assert REPLIES.keys() | REQUESTS.keys() == told | {
        name for name in THEIRS if ".request" in name or ".stop.all" in name
    }


def test_galleries_are_read_out_of_their_string() -> None:
    request = requests.InstallRequest.decode(golden("install.request.external"))
    assert request.wanted().galleries == (
        Gallery(name="localai", url="https://g"),
        Gallery(name='"quoted" & <odd>', url="oci://quay.io/g:v1"),
    )


def test_both_speak_of_the_same_subjects() -> None:
    node = "a.b*c"
    paths = {value for name, value in vars(subjects).items() if name.isupper() and name[0] != "_"}
    heard = {one for one in theirs.SUBJECTS if theirs.Role.WORKER in one.subscribers}
    assert {subjects.of(node, path) for path in paths} == {
        one.of(node) for one in heard - set(theirs.FILES)
    }
    assert subjects.progress("a.b c", "x.y z") == theirs.INSTALL_PROGRESS.of("a.b c", op="x.y z")


@pytest.mark.parametrize("kind", sorted(set(REQUESTS.values()), key=str))
@given(
    payload=st.binary()
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(
                    ["backend", "Force", "op_id", "model_name", "replica_index", "address"]
                )
                | st.text(),
                inner,
            )
        ),
        max_leaves=8,
    ).map(lambda value: json.dumps(value).encode())
)
def test_whatever_comes_is_a_message_or_a_sentence(kind: type[Any], payload: bytes) -> None:
    with suppress(BadMessage):
        kind.decode(payload)


@pytest.mark.parametrize(
    "name", ["../up", "a/b", "/etc", "..", ".hidden", "a\\b", "", "  ", "a\x00b", "x" * 256]
)
def test_a_name_that_is_a_path_is_refused(name: str) -> None:
    for body in ({"backend": name}, {"backend": "x", "name": name or "/"}):
        with pytest.raises(BadMessage):
            requests.InstallRequest.decode(json.dumps(body).encode())
    with pytest.raises(BadMessage):
        requests.DeleteRequest.decode(json.dumps({"backend": name}).encode())


@pytest.mark.parametrize("text", ["{", "7", '"x"', "[7]", '[{"url":7}]', '{"url":"x"}'])
def test_galleries_that_are_none_are_refused(text: str) -> None:
    request = requests.InstallRequest(backend="x", backend_galleries=text)
    with pytest.raises(BadMessage):
        request.wanted()


def test_a_megabyte_is_refused_in_a_sentence() -> None:
    with pytest.raises(BadMessage, match=r"length <= 255 - at `\$.backend`"):
        requests.InstallRequest.decode(json.dumps({"backend": "x" * 2**20}).encode())
