"""The manager's side of NATS, with bare nats-py: subjects and JSON as the wire has them."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError

from tests.contract_worker.background import Background

TOKEN = {ord(sign): "-" for sign in ".*> \t\n"}


@dataclass(frozen=True, slots=True)
class Tick:
    """A progress event, and when it came."""

    at: float
    body: dict[str, Any]


class Bus:
    """What one node is asked."""

    def __init__(self, background: Background, client: Client, node_id: str) -> None:
        self._background = background
        self._client = client
        self.node_id = node_id

    def close(self) -> None:
        self._background.run(self._client.close())

    def subject(self, path: str) -> str:
        return f"nodes.{self.node_id.translate(TOKEN)}.{path}"

    def ask_raw(self, path: str, payload: bytes, *, within: float = 60.0) -> bytes:
        question = self._client.request(self.subject(path), payload, timeout=within)
        reply: Msg = self._background.run(question, within=within + 5)
        return reply.data

    def ask(self, path: str, body: object = None, *, within: float = 60.0) -> dict[str, Any]:
        answer = json.loads(self.ask_raw(path, json.dumps(body or {}).encode(), within=within))
        assert isinstance(answer, dict)
        return answer

    def tell(self, path: str, payload: bytes) -> None:
        self._background.run(self._client.publish(self.subject(path), payload))
        self._background.run(self._client.flush())

    def listens(self) -> bool:
        """Whether anybody is subscribed for this node."""
        try:
            self.ask("models.running", within=30.0)
        except NoRespondersError:
            return False
        return True

    def running(self) -> dict[tuple[str, int], str]:
        """(model, replica) -> address, as the worker lists them."""
        models = self.ask("models.running", within=30.0)["models"]
        return {
            (one["model_id"], one.get("replica_index", 0)): one.get("address", "") for one in models
        }

    @contextmanager
    def progress(self, op_id: str) -> Iterator[list[Tick]]:
        """Every event of one operation, from before it is asked for; without an id, of any."""
        ticks: list[Tick] = []

        async def hear(message: Msg) -> None:
            ticks.append(Tick(time.monotonic(), json.loads(message.data)))

        path = self.subject(f"backend.install.{op_id.translate(TOKEN) or '*'}.progress")
        subscription = self._background.run(self._client.subscribe(path, cb=hear))
        self._background.run(self._client.flush())
        try:
            yield ticks
        finally:
            self._background.run(subscription.unsubscribe())
