"""A worker on the real NATS that answers what a test tells it to, and nothing else.

It listens to exactly the subjects that were scripted, so whatever was not has no responders.
"""

import asyncio
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Self

from django.conf import settings
from nats.aio.client import Client
from nats.aio.msg import Msg

from nodes.wire import Subject, UpgradeRequest
from nodes.wire.subjects import INSTALL_PROGRESS
from tests.contract.responder import responding
from tests.services import until


@dataclass
class ScriptedWorker:
    node_id: uuid.UUID = field(default_factory=uuid.uuid4)
    url: str = field(default_factory=lambda: settings.CLUSTER.nats_url)
    login: dict[str, Any] = field(default_factory=dict)  # more than the address has
    heard: list[tuple[str, bytes]] = field(default_factory=list)  # (subject's path, payload)
    _unanswered: list[tuple[asyncio.AbstractEventLoop, Msg]] = field(default_factory=list)
    _running: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def answers(
        self,
        subject: Subject,
        reply: bytes | Callable[[bytes], bytes | None] | None,
        *,
        progress: Sequence[bytes] = (),
    ) -> None:
        """From now on, publish `progress` and send `reply`; None: keep quiet after all.

        A function is called with each question and returns the reply to it.
        """

        async def play(client: Client, message: Msg) -> None:
            self.heard.append((subject.path, message.data))
            for event in progress:
                op_id = UpgradeRequest.decode(message.data).op_id  # an install's key is the same
                await client.publish(INSTALL_PROGRESS.of(self.node_id, op=op_id), event)
            answer = reply(message.data) if callable(reply) else reply
            if answer is None:
                self._unanswered.append((asyncio.get_running_loop(), message))
            elif message.reply:
                await message.respond(answer)

        self._running.enter_context(
            responding(self.url, subject.of(self.node_id), play, **self.login)
        )

    def listens(self, subject: Subject) -> None:
        """Hear `subject` and never answer, as events want it, and as a hung worker does."""
        self.answers(subject, None)

    def answers_late(self, reply: bytes) -> None:
        """Answer everything that was left unanswered."""
        for loop, message in self._unanswered:
            asyncio.run_coroutine_threadsafe(message.respond(reply), loop).result(60)
        self._unanswered.clear()

    def payload(self) -> bytes:
        """The only thing that was heard, once it has arrived."""
        until(lambda: bool(self.heard))
        [(_, payload)] = self.heard
        return payload
