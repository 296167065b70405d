import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustermgr.lib.errors import InvalidInput
from nodes.fields import UINT64_MAX
from nodes.wire import RegisterRequest, register_reply

# As an unmodified `local-ai worker` sends it.
BODY = """
{"name":"gpu-a","address":"10.0.0.7:50051","http_address":"10.0.0.7:50050",
 "total_vram":25757220864,"available_vram":25757220864,"gpu_vendor":"nvidia",
 "gpu_compute_capability":"8.9","capability":"nvidia-cuda-12","max_replicas_per_model":2,
 "total_disk":1000,"available_disk":800,"total_ram":64,"available_ram":48,"token":"s3cret",
 "labels":{"tier":"fast","node.replica-slots":"2"}}
"""

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(["name", "address", "Labels", "total_vram", "vram_budget", "x"])


def body(**changes: Any) -> dict[str, Any]:
    return {"name": "gpu-a", "address": "10.0.0.7:50051", **changes}


def test_a_localai_worker_is_understood() -> None:
    assert RegisterRequest.decode(json.loads(BODY)) == RegisterRequest(
        name="gpu-a",
        node_type="backend",
        address="10.0.0.7:50051",
        http_address="10.0.0.7:50050",
        token="s3cret",
        total_vram=25757220864,
        available_vram=25757220864,
        total_ram=64,
        available_ram=48,
        total_disk=1000,
        available_disk=800,
        gpu_vendor="nvidia",
        gpu_compute_capability="8.9",
        capability="nvidia-cuda-12",
        max_replicas_per_model=2,
        labels={"tier": "fast", "node.replica-slots": "2"},
    )


def test_an_agent_needs_no_address() -> None:
    request = RegisterRequest.decode({"name": "agent-1", "node_type": "agent"})
    assert (request.node_type, request.address) == ("agent", "")


def test_null_and_absent_mean_zero() -> None:
    nothing = RegisterRequest.decode(body(total_vram=None, labels=None, gpu_vendor=None))
    assert (nothing.total_vram, nothing.labels, nothing.gpu_vendor) == (0, {}, "")
    assert nothing.node_type == "backend"


def test_unknown_keys_are_ignored_and_known_ones_match_in_any_case() -> None:
    request = RegisterRequest.decode(
        {"NAME": "gpu-a", "Address": "10.0.0.7:1", "shoe_size": [44], "Total_VRAM": 7}
    )
    assert (request.name, request.address, request.total_vram) == ("gpu-a", "10.0.0.7:1", 7)


def test_the_last_spelling_of_a_key_wins_unless_it_is_null() -> None:
    assert RegisterRequest.decode(body(Name="gpu-b", NAME=None)).name == "gpu-b"


def test_byte_counts_use_all_64_bits() -> None:
    assert RegisterRequest.decode(body(total_vram=UINT64_MAX)).total_vram == UINT64_MAX


@pytest.mark.parametrize("slots", [0, -3, None])
def test_fewer_than_one_slot_means_one(slots: int | None) -> None:
    assert RegisterRequest.decode(body(max_replicas_per_model=slots)).max_replicas_per_model == 1


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"name": ""}, "name is required"),
        ({"name": "  "}, "name is required"),
        ({"name": "é" * 128}, "name is 256 bytes long; at most 255"),
        ({"name": "gpu\x00"}, "name contains control characters"),
        ({"name": "gpu\n1"}, "name contains control characters"),
        ({"name": "gpu\u202e1"}, "name contains control characters"),
        ({"name": "\ud800"}, "name is not valid Unicode"),
        ({"name": 7}, "name must be a string"),
        ({"node_type": "toaster"}, "node_type must be backend or agent"),
        ({"address": ""}, "address is required"),
        ({"address": "a" * 513}, "address is 513 bytes"),
        ({"http_address": "a" * 513}, "http_address is 513 bytes"),
        ({"total_vram": -1}, "total_vram must be between"),
        ({"total_vram": 2**64}, "total_vram must be between"),
        ({"total_vram": 1.0}, "total_vram must be a whole number"),
        ({"total_vram": True}, "total_vram must be a whole number"),
        ({"available_disk": "many"}, "available_disk must be a whole number"),
        ({"max_replicas_per_model": 10_001}, "max_replicas_per_model must be at most 10000"),
        ({"gpu_vendor": "n" * 33}, "gpu_vendor is 33 bytes"),
        ({"gpu_compute_capability": "1" * 17}, "gpu_compute_capability is 17 bytes"),
        ({"capability": "c" * 65}, "capability is 65 bytes"),
        ({"vram_budget": "9" * 33}, "vram_budget is 33 bytes"),
        ({"boot_id": "b" * 65}, "boot_id is 65 bytes"),
        ({"labels": ["a"]}, "labels must be a JSON object"),
        ({"labels": {"": "x"}}, "A label key"),
        ({"labels": {"k" * 129: "x"}}, "A label key"),
        ({"labels": {"k": "v" * 256}}, "A label value"),
        ({"labels": {"k": 1}}, "A label value"),
        ({"labels": {"k": "a\x00"}}, "A label value"),
        ({"labels": {str(i): "" for i in range(65)}}, "A node has at most 64 labels"),
    ],
)
def test_what_cannot_be_stored_is_refused_by_name(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidInput, match=f"^{sentence}"):
        RegisterRequest.decode(body(**changes))


@given(st.dictionaries(KEYS, JSON) | JSON)
def test_no_json_whatever_is_more_than_invalid_input(anything: Any) -> None:
    try:
        request = RegisterRequest.decode(anything)
    except InvalidInput:
        return
    assert 0 < len(request.name.encode()) <= 255


def test_the_token_stays_out_of_the_logs() -> None:
    assert "s3cret" not in repr(RegisterRequest.decode(json.loads(BODY)))


def test_the_reply_is_what_a_localai_worker_reads() -> None:
    reply = register_reply(
        node_id=UUID(int=7),
        name="gpu-a",
        node_type="backend",
        status="pending",
        created_at=datetime(2026, 8, 1, 10, tzinfo=UTC),
    )
    assert json.dumps(reply) == (
        '{"id": "00000000-0000-0000-0000-000000000007", "name": "gpu-a",'
        ' "node_type": "backend", "status": "pending", "created_at": "2026-08-01T10:00:00Z"}'
    )


def test_credentials_are_in_the_reply_only_when_there_are_any() -> None:
    reply = register_reply(
        node_id=UUID(int=7),
        name="gpu-a",
        node_type="backend",
        status="healthy",
        created_at=datetime(2026, 8, 1, 10, 0, 0, 120_000, tzinfo=UTC),
        nats_jwt="eyJ0",
        nats_user_seed="SUA",
    )
    assert reply["created_at"] == "2026-08-01T10:00:00.120000Z"
    assert (reply["nats_jwt"], reply["nats_user_seed"]) == ("eyJ0", "SUA")
    assert "api_token" not in reply
