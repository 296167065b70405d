import json
import re
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User

from clustermgr import tokens
from nodes.models import JoinToken
from nodes.services import labels
from tests.api.clients import Caller
from tests.factories import GIB, NOW, make_node, make_pending, make_replica, make_token

GOLDEN = Path(__file__).parent / "golden"
SHAPES = {
    "<uuid>": re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
    "<time>": re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"),
}


@pytest.fixture
def world(environment_token: JoinToken) -> None:
    """What every recorded conversation takes place in."""
    user = User.objects.create_user("root", is_superuser=True)
    tokens.issue(user, name="golden", now=NOW, secret="operator-secret")
    ours = {"join_token": environment_token}
    node = make_node(
        "gpu-1",
        id=UUID(int=1),
        total_vram=24 * GIB,
        available_vram=20 * GIB,
        total_ram=64 * GIB,
        available_ram=48 * GIB,
        total_disk=1000,
        available_disk=800,
        gpu_vendor="nvidia",
        gpu_compute_capability="8.9",
        capability="nvidia-cuda-12",
        **ours,
    )
    labels.merge_admin(node, {"tier": "fast"}, by="tests", now=NOW)
    make_replica(node, id=UUID(int=101), in_flight=3)
    make_replica(
        node,
        "llama",
        1,
        id=UUID(int=102),
        state="unloading",
        loading_by="frontend-1",
        config_revision="r1",
        effective_options_hash="abc",
        cleanup_error="busy",
        cleanup_attempts=2,
        cleanup_next_retry_at=NOW,
    )
    make_pending("new-1", id=UUID(int=2), **ours)
    make_node(
        "old-1", id=UUID(int=3), retired_at=NOW, retired_by="tests", liveness="offline", **ours
    )
    make_node("theirs-1", id=UUID(int=4), join_token=make_token())


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("name", sorted(path.stem for path in GOLDEN.glob("*.json")))
def test_the_conversation_goes_as_it_was_recorded(name: str) -> None:
    recorded = json.loads((GOLDEN / f"{name}.json").read_text())
    body = recorded.get("body", b"")
    reply = Caller(recorded.get("token", "")).send(
        recorded["method"],
        recorded["path"],
        body.encode() if isinstance(body, str) else body,
        content_type="application/json" if body else "",
    )
    assert reply.status_code == recorded["status"], reply.content
    assert reply.headers["Content-Type"] == "application/json"
    answered = _masked(recorded["reply"], json.loads(reply.content))
    assert json.dumps(answered, indent=2) == json.dumps(recorded["reply"], indent=2)


def _masked(expected: Any, actual: Any) -> Any:
    """`actual`, with what differs each time replaced by the name of its shape."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        return {key: _masked(expected.get(key), value) for key, value in actual.items()}
    if isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        return [_masked(*pair) for pair in zip(expected, actual, strict=True)]
    shape = SHAPES.get(expected) if isinstance(expected, str) else None
    return expected if shape and shape.fullmatch(str(actual)) else actual
