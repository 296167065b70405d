"""Several web processes of one cluster: whichever is asked, the answer is the same."""

import json
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from clustermgr.embedded.parts import UVICORN
from tests.embedded.running import ROOT, Up, command_of, simulated
from tests.services import free_port, until

pytestmark = pytest.mark.timeout(600)

# An install takes twenty seconds: long enough to do something in the middle of it
SLOW = ("--backend-size", "4000000", "--link-speed", "200000")


@dataclass(frozen=True, slots=True, kw_only=True)
class Web:
    """One web process, as a script talks to it."""

    url: str
    token: str

    def ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        request = urllib.request.Request(
            self.url + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.load(reply)

    def install(self, backend: str, *nodes: dict[str, Any]) -> str:
        wish = {"verb": "install", "backend": backend, "nodes": [node["id"] for node in nodes]}
        job: str = self.ask("/api/operations", wish)["jobID"]
        return job

    def record(self, job: str) -> dict[str, Any]:
        told: dict[str, Any] = self.ask(f"/api/operations/{job}")
        del told["eta"]  # counted from the moment of asking
        return told

    def live(self) -> list[dict[str, Any]]:
        told: list[dict[str, Any]] = self.ask("/api/operations")["operations"]
        for operation in told:
            del operation["eta"]
        return told

    def bytes_of(self, job: str) -> list[int]:
        return [node["currentBytes"] for node in self.record(job)["nodes"]]

    def cancelled(self, job: str) -> bool:
        return bool(self.record(job)["state"] == "cancelled")


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One cluster: its own web process is A, and its Celery processes carry everything out."""
    data = tmp_path_factory.mktemp("webs") / "data"
    up = Up(data, CLUSTER_AUTO_APPROVE_NODES="true").start()
    with simulated(up, 2, *SLOW):
        yield up
    up.stop()


@pytest.fixture(scope="module")
def a(up: Up) -> Web:
    facts = up.run()
    return Web(url=facts["url"], token=facts["api_token"])


@contextmanager
def another(up: Up) -> Iterator[Web]:
    """One more web process with the same settings, as a deployment would start it."""
    first = next(one for one in up.ours() if "uvicorn" in command_of(one))
    port = free_port()
    process = subprocess.Popen(
        [*UVICORN, "--host", "127.0.0.1", "--port", str(port), "--log-level", "warning"],
        cwd=ROOT,
        env=first.environ(),
    )
    web = Web(url=f"http://127.0.0.1:{port}", token=up.run()["api_token"])

    def answers() -> bool:
        try:
            with urllib.request.urlopen(f"{web.url}/healthz", timeout=5) as reply:
                return bool(reply.status == 200)
        except OSError:
            return False

    try:
        until(answers)
        yield web
    finally:
        process.terminate()
        process.wait(60)


@pytest.fixture(scope="module")
def b(up: Up) -> Iterator[Web]:
    with another(up) as web:
        yield web


@pytest.fixture(scope="module")
def nodes(a: Web) -> list[dict[str, Any]]:
    until(lambda: len(a.ask("/api/nodes")) == 2)
    found: list[dict[str, Any]] = a.ask("/api/nodes")
    return found


def test_row_9_the_same_backend_on_another_node_is_another_job_whichever_web_is_asked(
    a: Web, b: Web, nodes: list[dict[str, Any]]
) -> None:
    jobs: dict[tuple[str, str], str] = {}
    start = threading.Barrier(4)

    def post(web: Web, node: dict[str, Any]) -> None:
        start.wait()
        jobs[web.url, node["id"]] = web.install("same", node)

    posts = [threading.Thread(target=post, args=(web, node)) for web in (a, b) for node in nodes]
    for thread in posts:
        thread.start()
    for thread in posts:
        thread.join()
    one, two = nodes
    assert jobs[a.url, one["id"]] == jobs[b.url, one["id"]]  # that is the same work
    assert jobs[a.url, two["id"]] == jobs[b.url, two["id"]]
    assert jobs[a.url, one["id"]] != jobs[a.url, two["id"]]
    for node in nodes:
        job = jobs[a.url, node["id"]]
        until(lambda job=job: any(b.bytes_of(job)))  # type: ignore[misc]  # each is at its own
        assert [share["node_name"] for share in a.record(job)["nodes"]] == [node["name"]]
        a.ask(f"/api/operations/{job}/cancel", {})


def test_row_54_and_50_what_another_web_began_can_be_stopped(
    a: Web, b: Web, nodes: list[dict[str, Any]]
) -> None:
    job = a.install("stopped", nodes[0])
    until(lambda: any(b.bytes_of(job)))  # a Celery process of A's holds it, and its node is at it
    assert b.ask(f"/api/operations/{job}/cancel", {"reason": "wrong one"})["count"] == 1
    until(lambda: a.cancelled(job))  # long before it would have been done
    [share] = a.record(job)["nodes"]
    assert share["note"].endswith("The node gave it up.")
    has = a.ask(f"/api/nodes/{nodes[0]['id']}/backends?refresh=true")
    assert "stopped" not in [one["name"] for one in has]


def test_row_55_every_web_tells_the_same_list_and_record(
    a: Web, b: Web, nodes: list[dict[str, Any]]
) -> None:
    job = a.install("watched", *nodes)
    until(lambda: all(a.bytes_of(job)))
    # Between two questions the bar may move: not so often that they never agree
    until(lambda: a.live() == b.live() != [])
    until(lambda: a.record(job) == b.record(job))
    b.ask(f"/api/operations/{job}/cancel", {})
    until(lambda: a.cancelled(job))
    assert a.record(job) == b.record(job)
    assert a.ask("/api/operations/history") == b.ask("/api/operations/history")
    assert a.ask("/api/backends/job/" + job) == b.ask("/api/backends/job/" + job)


def test_row_56_a_web_that_starts_in_the_middle_shows_every_node_s_share(
    up: Up, a: Web, nodes: list[dict[str, Any]]
) -> None:
    job = a.install("midway", *nodes)
    until(lambda: all(a.bytes_of(job)))
    with another(up) as fresh:
        [seen] = [operation for operation in fresh.live() if operation["jobID"] == job]
    assert seen["state"] == "running"
    shares = {share["node_name"]: share for share in seen["nodes"]}
    assert set(shares) == {node["name"] for node in nodes}
    for share in shares.values():
        assert share["phase"] == "downloading"
        assert share["file_name"]
        assert 0 < share["percentage"] <= 100
    a.ask(f"/api/operations/{job}/cancel", {})
    until(lambda: a.cancelled(job))
