import json
from io import BytesIO
from typing import Any

import pytest
from django.core.handlers.asgi import ASGIRequest

from nodes.api.edits import LabelsView
from nodes.models import BackendNode, ClusterEvent, JoinToken, NodeLabel, NodeTaint
from tests.api.clients import Caller, read
from tests.factories import make_node

DEEP = b"[" * 100_000 + b"]" * 100_000
NOT_JSON = [
    b"{",
    b"\xff",
    b"\xef\xbb\xbf{}",
    b'{"value": NaN}',
    b'{"value": -Infinity}',
    b'{"value": 1, "value": 2}',
    b'{"value": "\\ud800"}',
    b'{"\\ud800": "1"}',
    b'{"value": ' + b"9" * 5_000 + b"}",
    DEEP,
    b'{"value": ' + DEEP + b"}",
]
NOT_OBJECTS = [b"[]", b"7", b'"x"', b"null", b"true", b'[{"key": "a"}]']


@pytest.fixture
def path(db: None) -> str:
    return f"/api/nodes/{make_node().pk}"


def rows() -> list[Any]:
    tables = (BackendNode, NodeLabel, NodeTaint, JoinToken, ClusterEvent)
    return [list(table._default_manager.order_by("pk").values()) for table in tables]


def refused(root: Caller, method: str, path: str, body: object, status: int = 400) -> str:
    before = rows()
    reply = root.send(method, path, body)
    assert reply.status_code == status, reply.content
    assert rows() == before
    refusal = read(reply)
    assert refusal["error"]["message"] == refusal["detail"]
    return str(refusal["detail"])


ENDPOINTS = [
    ("PUT", "/labels"),
    ("PATCH", "/labels"),
    ("PUT", "/taints"),
    ("PUT", "/max-replicas-per-model"),
    ("PUT", "/vram-budget"),
    ("POST", "/drain"),
    ("POST", "/cordon"),
    ("POST", "/retire"),
]


@pytest.mark.parametrize(("method", "edit"), ENDPOINTS)
def test_what_is_no_json_is_refused_by_everyone(
    root: Caller, path: str, method: str, edit: str
) -> None:
    for body in NOT_JSON:
        assert refused(root, method, f"{path}{edit}", body)


@pytest.mark.parametrize(("method", "edit"), [pair for pair in ENDPOINTS if pair[1] != "/taints"])
@pytest.mark.parametrize("body", NOT_OBJECTS)
def test_an_object_is_an_object(
    root: Caller, path: str, method: str, edit: str, body: bytes
) -> None:
    assert refused(root, method, f"{path}{edit}", body)


@pytest.mark.parametrize(("method", "edit"), ENDPOINTS)
def test_too_large_is_refused_unread_and_a_form_is_no_json(
    root: Caller, path: str, method: str, edit: str
) -> None:
    assert "larger than" in refused(root, method, f"{path}{edit}", b" " * 10_000_000, 413)
    before = rows()
    form = root.send(
        method, f"{path}{edit}", b"value=1", content_type="application/x-www-form-urlencoded"
    )
    assert (form.status_code, read(form)["code"]) == (415, "unsupported_media_type")
    assert rows() == before


@pytest.mark.parametrize(
    "body",
    [
        {"": "x"},
        {"k" * 129: "x"},
        {"two words": "x"},
        {"k\x00": "x"},
        {"k": "v" * 256},
        {"k": "a\x00"},
        {"k": "a\nb"},
        {"k": 1},
        {"k": None},
        {"k": ["x"]},
        {str(number): "" for number in range(65)},
    ],
)
def test_a_label_has_bounds(root: Caller, path: str, body: Any) -> None:
    assert refused(root, "PUT", f"{path}/labels", body)
    assert refused(root, "PATCH", f"{path}/labels", body)


@pytest.mark.parametrize("key", ["%00", "two%20words", "k" * 129, "%F0%9F%A6%99"])
def test_what_cannot_be_a_label_cannot_be_deleted(root: Caller, path: str, key: str) -> None:
    assert refused(root, "DELETE", f"{path}/labels/{key}", b"")


@pytest.mark.parametrize(
    "value", [0, -1, 10001, 10**9, 2**64, 10**400, 1.0, 1.5, True, "4", None, [4], {}]
)
def test_slots_are_a_whole_number_within_reason(root: Caller, path: str, value: Any) -> None:
    assert refused(root, "PUT", f"{path}/max-replicas-per-model", {"value": value})
    assert refused(root, "PUT", f"{path}/max-replicas-per-model", {})


@pytest.mark.parametrize(
    "value",
    [
        "101%",
        "1.5",
        "-1",
        "80 percent",
        "x",
        "\x00",
        "9" * 33,
        "99999999TB",
        80,
        0.8,
        True,
        None,
        [],
    ],
)
def test_a_budget_is_text_for_at_most_everything(root: Caller, path: str, value: Any) -> None:
    assert refused(root, "PUT", f"{path}/vram-budget", {"value": value})


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"key": "a"},
        [1],
        [None],
        [[]],
        [{}],
        [{"key": ""}],
        [{"key": "two words"}],
        [{"key": "a\x00"}],
        [{"key": 7}],
        [{"key": "a", "effect": "Never"}],
        [{"key": "a", "effect": []}],
        [{"key": "a", "value": "v" * 256}],
        [{"key": "a"}, {"key": "a"}],
        [{"key": f"k{number}"} for number in range(65)],
    ],
)
def test_taints_have_bounds(root: Caller, path: str, body: Any) -> None:
    assert refused(root, "PUT", f"{path}/taints", body)


@pytest.mark.parametrize(
    "body",
    [
        {"reason": "x" * 256},
        {"reason": "é" * 200},
        {"reason": "a\x00"},
        {"reason": "a\u202eb"},
        {"reason": 7},
        {"reason": ["x"]},
        {"reason": None},
    ],
)
def test_a_reason_fits_on_a_line(root: Caller, path: str, body: Any) -> None:
    for verb in ("drain", "cordon", "retire"):
        assert refused(root, "POST", f"{path}/{verb}", body)


@pytest.mark.parametrize("seconds", [0, -1, 10**9, 1.5, "60", True, [60]])
def test_a_deadline_is_within_a_week(root: Caller, path: str, seconds: Any) -> None:
    assert refused(root, "POST", f"{path}/drain", {"deadline_seconds": seconds})


@pytest.mark.parametrize(
    "terms",
    [
        {},
        {"name": ""},
        {"name": " "},
        {"name": "n" * 101},
        {"name": "é" * 51},
        {"name": "a\nb"},
        {"name": "a\x00"},
        {"name": 7},
        {"name": "a", "max_nodes": 0},
        {"name": "a", "max_nodes": 2**31},
        {"name": "a", "max_nodes": 1.0},
        {"name": "a", "max_nodes": "many"},
        {"name": "a", "expires_at": "2001-01-01T00:00:00Z"},
        {"name": "a", "expires_at": "soon"},
        {"name": "a", "expires_at": "9999-12-31T23:59:59-23:59"},
        {"name": "a", "expires_at": "0001-01-01T00:00:00+23:59"},
        {"name": "a", "expires_at": 7},
        {"name": "a", "allowed_types": ["toaster"]},
        {"name": "a", "allowed_types": ["backend"] * 1000},
        {"name": "a", "allowed_types": "backend"},
        {"name": "a", "allowed_types": [["backend"]]},
        {"name": "a", "labels": {"k": 1}},
        {"name": "a", "labels": {"k\x00": "x"}},
        {"name": "a", "labels": {"": ""}},
        {"name": "a", "labels": []},
        {"name": "a", "auto_approve": "perhaps"},
        {"name": "a", "auto_approve": []},
        {"name": "a", "one_machine": {}},
        {"name": "a", "one_machine": None},
    ],
)
def test_terms_that_make_no_sense_make_no_token(root: Caller, terms: Any) -> None:
    assert refused(root, "POST", "/api/join-tokens", terms)


@pytest.mark.parametrize("number", ["0", "9" * 30, "9" * 5000, "-1", "x", "%00", "%EF%BC%91"])
def test_an_odd_number_is_an_unknown_row(root: Caller, number: str) -> None:
    assert root.post(f"/api/join-tokens/{number}/revoke").status_code == 404
    assert root.post(f"/api/events/{number}/acknowledge").status_code == 404


def test_an_answer_we_cannot_give_is_said_in_json(root: Caller) -> None:
    reply = root.get("/api/nodes", Accept="text/html")
    assert (reply.status_code, read(reply)["code"]) == (406, "not_acceptable")


def test_a_body_in_chunks_is_not_taken_for_none(root: Caller, path: str) -> None:
    root.put(f"{path}/labels", {"tier": "fast"})
    scope = {
        "type": "http",
        "method": "PUT",
        "path": f"{path}/labels",
        "query_string": b"",
        "headers": [
            (b"authorization", f"Bearer {root.secret}".encode()),
            (b"content-type", b"application/json"),
            (b"transfer-encoding", b"chunked"),
        ],
    }
    request = ASGIRequest(scope, BytesIO(json.dumps({"rack": "7"}).encode()))
    reply = LabelsView.as_view()(request, node_id=path.rpartition("/")[2])
    assert (reply.status_code, reply.data) == (200, {"rack": "7"})
