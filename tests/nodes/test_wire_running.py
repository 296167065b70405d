import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustermgr.lib.errors import NodeRefused
from nodes.wire import RunningModel, decode_running, running_models_subject, sanitise


def test_a_localai_reply_is_understood() -> None:
    reply = b'{"models":[{"model_id":"qwen3","replica_index":1,"address":"127.0.0.1:50052"}]}'
    assert decode_running(reply) == (RunningModel(model_id="qwen3", replica_index=1),)


@pytest.mark.parametrize("reply", [b'{"models":[]}', b'{"models":null}'])
def test_a_worker_may_say_that_nothing_runs(reply: bytes) -> None:
    assert decode_running(reply) == ()


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"{}",
        b"[]",
        b"{",
        b"\xff",
        b"[" * 100_000,
        b'{"models":{}}',
        b'{"models":[7]}',
        b'{"models":[{"replica_index":1}]}',
        b'{"models":[{"model_id":"a","replica_index":-1}]}',
        b'{"models":[],"error":"supervisor is gone"}',
    ],
)
def test_half_an_answer_is_no_evidence_of_absence(reply: bytes) -> None:
    with pytest.raises(NodeRefused):
        decode_running(reply)


@given(st.binary())
def test_no_bytes_whatever_are_more_than_a_refusal(reply: bytes) -> None:
    with pytest.raises(NodeRefused):
        decode_running(reply)


@pytest.mark.parametrize(
    ("token", "part"), [("a.b*c", "a-b-c"), ("a.b c", "a-b-c"), ("x>\t\n", "x---"), ("Ä#1", "Ä#1")]
)
def test_separators_do_not_survive_in_a_subject(token: str, part: str) -> None:
    assert sanitise(token) == part
    assert running_models_subject(token) == f"nodes.{part}.models.running"
