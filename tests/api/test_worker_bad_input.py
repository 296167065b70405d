import json
from typing import Any

import pytest
from django.apps import apps

from nodes.models import BackendNode, FailedAttempt
from tests.api.clients import REGISTRATION, SECRET, Worker, read

DEEP = b"[" * 100_000 + b"]" * 100_000


def rows() -> dict[str, int]:
    """How much there is of everything."""
    return {
        model.__name__: model._default_manager.count()
        for model in apps.get_app_config("nodes").get_models()
        if model is not FailedAttempt
    }


def refused(worker: Worker, body: object, status: int = 400) -> str:
    before = rows()
    reply = worker.post("/api/node/register", body)
    assert reply.status_code == status, reply.content
    assert rows() == before
    error = read(reply)["error"]
    assert (error["code"], error["type"]) == (status, "node_error")
    return str(error["message"])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", ""),
        ("name", " \t"),
        ("name", "a" * 256),
        ("name", "é" * 128),
        ("name", "🦙" * 64),
        ("name", "a\x00b"),
        ("name", "a\nb"),
        ("name", "a\x1b[31mb"),
        ("name", "a\u202eb"),
        ("name", "a\ud800b"),
        ("name", 7),
        ("name", ["a"]),
        ("node_type", "toaster"),
        ("node_type", "Backend"),
        ("address", ""),
        ("address", "a" * 513),
        ("address", "a\x00:1"),
        ("http_address", "a" * 513),
        ("token", 7),
        ("total_vram", -1),
        ("total_vram", 2**64),
        ("total_vram", 10**400),
        ("total_vram", 1.5),
        ("total_vram", 1.0),
        ("total_vram", True),
        ("total_vram", "24"),
        ("total_vram", []),
        ("available_vram", -1),
        ("total_ram", -1),
        ("available_ram", 2**64),
        ("total_disk", "many"),
        ("available_disk", {}),
        ("max_replicas_per_model", 10**9),
        ("max_replicas_per_model", 1.0),
        ("max_replicas_per_model", True),
        ("gpu_vendor", "n" * 33),
        ("gpu_vendor", "\ud83d"),
        ("gpu_compute_capability", "1" * 17),
        ("capability", "c" * 65),
        ("vram_budget", "101%"),
        ("vram_budget", "1000%"),
        ("vram_budget", "-1%"),
        ("vram_budget", "1.5"),
        ("vram_budget", "lots"),
        ("vram_budget", "9" * 33),
        ("vram_budget", "99999999TB"),
        ("vram_budget", 0.8),
        ("boot_id", "b" * 65),
        ("labels", []),
        ("labels", "a=b"),
        ("labels", {"": "x"}),
        ("labels", {"k" * 129: "x"}),
        ("labels", {"two words": "x"}),
        ("labels", {"k\x00": "x"}),
        ("labels", {"k": "v" * 256}),
        ("labels", {"k": "a\x00"}),
        ("labels", {"k": "\udfff"}),
        ("labels", {"k": 1}),
        ("labels", {"k": {"deep": "x"}}),
        ("labels", {str(number): "" for number in range(65)}),
    ],
)
def test_a_field_that_cannot_be_is_refused_and_nothing_is_written(
    worker: Worker, field: str, value: Any
) -> None:
    assert refused(worker, {**REGISTRATION, "token": SECRET, field: value})


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b'"name"',
        b"7",
        b"true",
        b"null",
        b'{"name": NaN}',
        b'{"name": Infinity}',
        b'{"name": "a"} {"name": "b"}',
        b'{"name": "\xff\xfe"}',
        b"\xef\xbb\xbf{}",
        '{"name": "a"}'.encode("utf-16"),
        b'{"name": "a\x00"}',
        b'{"total_vram": ' + b"9" * 5_000 + b"}",
        DEEP,
        b'{"labels": ' + DEEP + b"}",
        b"name=a&address=b",
    ],
)
def test_a_body_that_is_no_object_is_refused_and_nothing_is_written(
    worker: Worker, body: bytes
) -> None:
    assert refused(worker, body)


def test_ten_megabytes_are_refused_unread(worker: Worker) -> None:
    body = json.dumps({**REGISTRATION, "token": SECRET, "padding": "x" * 10_000_000}).encode()
    assert "larger than" in refused(worker, body, 413)
    node = worker.joined()
    assert worker.post(f"/api/node/{node}/heartbeat", body).status_code == 413


def test_the_longest_name_that_fits_is_taken(worker: Worker) -> None:
    assert worker.register(name="é" * 127).status_code == 201


def test_byte_counts_use_all_64_bits(worker: Worker) -> None:
    assert worker.register(total_ram=2**64 - 1).status_code == 201
    assert BackendNode.objects.get().total_ram == 2**64 - 1


@pytest.mark.parametrize(
    "node_id",
    ["x", "%00", "%0A", "%FF%FE", "..%2F", "%F0%9F%A6%99", "1" * 5_000, "{}", "null", "-1", "%25"],
)
def test_an_odd_id_is_an_unknown_node(worker: Worker, node_id: str) -> None:
    worker.joined()
    before = rows()
    for verb in ("heartbeat", "drain", "resume", "deregister"):
        assert worker.post(f"/api/node/{node_id}/{verb}").status_code == 404
    assert worker.get(f"/api/node/{node_id}/models").status_code == 404
    assert worker.delete(f"/api/node/{node_id}").status_code == 404
    assert rows() == before
