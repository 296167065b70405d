import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

import nats
import pytest
from django.conf import settings
from nats.aio.msg import Msg

from clustermgr.lib.errors import NodeRefused
from nodes.gateway import NodeGateway
from nodes.wire import RunningModel

NODE = UUID(int=7)


@dataclass
class OneWorker:
    """A worker and the bus to it, on the real NATS: answers what the test tells it to."""

    reply: bytes
    heard: list[tuple[str, bytes]] = field(default_factory=list)

    def request(self, subject: str, payload: bytes, *, timeout: timedelta) -> bytes:
        return asyncio.run(self._talk(subject, payload, timeout.total_seconds()))

    async def _talk(self, subject: str, payload: bytes, seconds: float) -> bytes:
        client = await nats.connect(settings.CLUSTER.nats_url)
        try:
            await client.subscribe(f"nodes.{NODE}.>", cb=self._answer)
            return (await client.request(subject, payload, timeout=seconds)).data
        finally:
            await client.close()

    async def _answer(self, message: Msg) -> None:
        self.heard.append((message.subject, message.data))
        await message.respond(self.reply)


def test_a_worker_lists_what_it_runs() -> None:
    worker = OneWorker(b'{"models":[{"model_id":"qwen3","replica_index":1,"address":"x"}]}')
    assert NodeGateway(worker).running_models(NODE) == (
        RunningModel(model_id="qwen3", replica_index=1),
    )
    assert worker.heard == [(f"nodes.{NODE}.models.running", b"{}")]


def test_a_worker_that_cannot_tell_is_not_an_empty_machine() -> None:
    with pytest.raises(NodeRefused, match="supervisor is gone"):
        NodeGateway(OneWorker(b'{"models":[],"error":"supervisor is gone"}')).running_models(NODE)
