import json
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import quote

import pytest
from websockets.sync.client import connect

from tests.contract_worker.ours import until
from tests.contract_worker.target import Target

LOGS = "/v1/backend-logs"


@pytest.fixture
def watched(worker: Target) -> Target:
    if not worker.http:
        pytest.skip("WORKER_CONTRACT_HTTP does not say where its HTTP server is")
    return worker


def get(target: Target, path: str, token: str | None = None) -> tuple[int, bytes]:
    bearer = {"Authorization": f"Bearer {target.token if token is None else token}"}
    asked = urllib.request.Request(f"http://{target.http}{path}", headers=bearer)
    try:
        with urllib.request.urlopen(asked, timeout=60) as reply:
            return int(reply.status), reply.read()
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.read()


def lines(target: Target, key: str) -> list[dict[str, Any]]:
    status, body = get(target, f"{LOGS}/{quote(quote(key, safe=''), safe='')}")
    assert status == 200, body
    shown: list[dict[str, Any]] = json.loads(body)
    return shown


def test_probes_need_no_token(watched: Target) -> None:
    assert get(watched, "/healthz", "") == (200, b"ok")
    assert get(watched, "/readyz", "") == (200, b"ok")


@pytest.mark.parametrize("token", ["", "wrong"])
def test_logs_need_the_registration_token(watched: Target, token: str) -> None:
    for path in (LOGS, f"{LOGS}/llama"):
        assert get(watched, path, token)[0] == 401


def test_logs_are_listed_by_model_and_read_merged_or_one_by_one(watched: Target) -> None:
    for replica in (0, 1):
        watched.installed("org/llama", replica)
    until(lambda: bool(lines(watched, "org/llama#0")) and bool(lines(watched, "org/llama#1")))
    assert "org/llama" in json.loads(get(watched, LOGS)[1])
    merged = lines(watched, "org/llama")
    for shown in merged:
        assert set(shown) == {"timestamp", "stream", "text"}
        assert shown["stream"] in ("stdout", "stderr")
    assert [shown["timestamp"] for shown in merged] == sorted(it["timestamp"] for it in merged)
    assert len(merged) >= len(lines(watched, "org/llama#0")) + len(lines(watched, "org/llama#1"))
    assert lines(watched, "never-ran") == []


def test_a_log_is_followed(watched: Target) -> None:
    watched.installed("followed")
    until(lambda: bool(lines(watched, "followed#0")))
    bearer = {"Authorization": f"Bearer {watched.token}"}
    url = f"ws://{watched.http}{LOGS}/{quote(quote('followed#0', safe=''), safe='')}/ws"
    with connect(url, additional_headers=bearer) as socket:
        initial = json.loads(socket.recv(timeout=60))
        assert initial["type"] == "initial"
        assert initial["lines"] == lines(watched, "followed#0")
        if watched.process is None:
            return  # a foreign backend need not print anything when it frees
        request = {"model_name": "", "address": watched.bus.running()["followed", 0]}
        watched.bus.ask("model.unload", request)
        frame = json.loads(socket.recv(timeout=60))
        assert frame["type"] == "line"
        assert (frame["line"]["stream"], frame["line"]["text"]) == ("stderr", "asked to free")
