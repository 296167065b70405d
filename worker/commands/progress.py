"""How an operation tells how far it has come: at once, then at most four times a second."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from worker.machine import Step
from worker.sizes import size_in_words
from worker.wire import subjects
from worker.wire.replies import Progress

log = logging.getLogger(__name__)

PAUSE = 0.25  # seconds between two ticks

Publish = Callable[[str, bytes], Awaitable[None]]


class Ticker:
    """One operation's voice. Everything but `tell` belongs to the event loop."""

    def __init__(self, publish: Publish, *, node_id: str, op_id: str, backend: str) -> None:
        self._publish = publish
        self._node_id = node_id
        self._op_id = op_id
        self._backend = backend
        self._loop = asyncio.get_running_loop()
        self._seq = 0
        self._held: Step | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._sent: asyncio.Task[None] | None = None
        self._over = False

    def tell(self, step: Step) -> None:
        """Take note of a step, from any thread."""
        if self._op_id:
            self._loop.call_soon_threadsafe(self._hear, step)

    async def finish(self) -> None:
        """Send what was held back; nothing is told after this."""
        await asyncio.sleep(0)  # steps told a moment ago are still on their way to us
        self._over = True
        if self._timer:
            self._timer.cancel()
        if self._held:
            self._send(self._held)
        if self._sent:
            await self._sent

    def _hear(self, step: Step) -> None:
        if self._over:
            return
        if self._timer:
            self._held = step
        else:
            self._send(step)
            self._timer = self._loop.call_later(PAUSE, self._quiet)

    def _quiet(self) -> None:
        """The pause is over: send what came in it, and pause again; or be ready for the next."""
        self._timer = None
        if self._held:
            self._send(self._held)
            self._timer = self._loop.call_later(PAUSE, self._quiet)

    def _send(self, step: Step) -> None:
        self._held = None
        self._seq += 1
        self._sent = self._loop.create_task(self._deliver(self._event(step), after=self._sent))

    async def _deliver(self, event: Progress, *, after: asyncio.Task[None] | None) -> None:
        if after:
            await after  # in order, whatever a full buffer does to the one before
        try:
            await self._publish(subjects.progress(self._node_id, self._op_id), event.encode())
        except Exception as error:  # edge: progress is best effort, the install goes on
            log.debug("progress not sent", extra={"op": self._op_id, "reason": str(error)})

    def _event(self, step: Step) -> Progress:
        share = 100 * step.current / step.total if step.total else 0.0
        return Progress(
            op_id=self._op_id,
            node_id=self._node_id,
            backend=self._backend,
            percentage=round(min(share, 100.0), 1),
            file_name=step.file_name,
            current=size_in_words(step.current) if step.current else "",
            total=size_in_words(step.total) if step.total else "",
            phase=step.phase,
            seq=self._seq,
        )
