"""The life of one node: get in, listen, beat, and leave in good order."""

import asyncio
import itertools
import logging
import random
import time
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from worker.commands.desk import Desk, Machine
from worker.joining import GONE, Joining, Read, backoff
from worker.link import Address, Link
from worker.manager import Manager, ManagerError
from worker.wire.credentials import Credentials
from worker.wire.http import Registered, Registration

log = logging.getLogger(__name__)

REFRESH_AT = 0.75  # of a credential's life
LOOK_AGAIN = 60.0  # seconds
REFRESH_AGAIN = 30.0  # seconds, after a renewal that failed
DRAIN = 30.0  # seconds that requests under way may take
LEAVING = 60.0  # seconds for all that we tell the manager
IN_FLIGHT = 30.0  # seconds for commands under way
UNKNOWN = (404, GONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who the node is and where it belongs; the same for as long as the process lives."""

    registration: Registration
    nats: Address
    heartbeat_every: timedelta = timedelta(seconds=10)
    needs_credentials: bool = False  # wait for them rather than come as nobody
    own_credentials: Credentials | None = field(default=None, repr=False)


class Agent:
    """One node; `run` returns when it was told to stop and has left."""

    def __init__(
        self,
        identity: Identity,
        *,
        manager: Manager,
        machine: Machine,
        readings: Read,
        stopping: asyncio.Event | None = None,
    ) -> None:
        self.stopping = stopping or asyncio.Event()
        self.beating = True
        self.desk = Desk(machine, on_stop=self.stopping.set)
        self.known: Registered | None = None
        self.joined = asyncio.Event()  # registered at least once
        self.link: Link | None = None
        self._identity = identity
        self._manager = manager
        self._readings = readings
        self._joining = Joining(manager, identity.registration, readings)
        self._lost = asyncio.Event()  # the manager does not know us any more

    def why_not_ready(self) -> str:
        """What keeps us from hearing commands; empty when nothing does."""
        if self.link is None:
            return "not registered yet"
        if self.link.connected:
            return ""
        return f"NATS is not connected ({self.link.trouble or 'connecting'})"

    def hang(self) -> None:
        """Neither beat nor answer, as a machine that is stuck; for simulations."""
        self.beating = False
        if self.link:
            self.link.deaf = True

    def recover(self) -> None:
        """Undo `hang`."""
        self.beating = True
        if self.link:
            self.link.deaf = False

    async def run(self) -> None:
        """Live until told to stop, then leave in good order."""
        living = asyncio.create_task(self._live())
        told = asyncio.create_task(self.stopping.wait())
        try:
            await asyncio.wait({living, told}, return_when=asyncio.FIRST_COMPLETED)
            if living.done():
                living.result()
            await self._leave()
        finally:
            for task in (living, told):
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            await self.desk.machine.processes.close()

    async def _live(self) -> None:
        """Be one node after the other: a manager that forgot us may give us a new id."""
        while True:
            self._lost.clear()
            self.known = await self._let_in()
            self.joined.set()
            link = Link(
                self._identity.nats, node_id=self.known.id, credentials=lambda: self._credentials
            )
            self.link = link
            handlers = self.desk.handlers(self.known.id, link.publish)
            works: list[Coroutine[Any, Any, object]] = [
                link.keep(handlers),
                self._beat(link),
                self._renew(),
                self._renew_when_refused(link),
                self._lost.wait(),
            ]
            tasks = [asyncio.create_task(work) for work in works]
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            finally:
                await _end(tasks)

    async def _let_in(self) -> Registered:
        known = await self._joining.until_known()
        identity = self._identity
        if identity.own_credentials or identity.nats.names_user:
            return known  # we can listen already, and be approved whenever they like
        return await self._joining.until_let_in(known) if identity.needs_credentials else known

    @property
    def _credentials(self) -> Credentials | None:
        given = self.known.credentials if self.known else None
        return self._identity.own_credentials or given

    async def _beat(self, link: Link) -> None:
        """Say that we are alive as often as the manager wants; never while nobody can reach us."""
        own = self._identity.heartbeat_every.total_seconds()
        every, pause = own, own * random.random()  # nodes that start together beat apart
        while True:
            await asyncio.sleep(pause * random.uniform(0.9, 1.1))
            pause = every
            if not (self.beating and link.connected):
                continue
            try:
                body = (await self._readings()).beat()
                wanted = await self._manager.beat(link.node_id, body)
            except ManagerError as refusal:
                if refusal.status in UNKNOWN:
                    log.warning("the manager does not know us", extra={"reason": str(refusal)})
                    self._lost.set()
                    return
                log.warning("heartbeat not heard", extra={"reason": str(refusal)})
                pause = max(refusal.retry_after, every)
            else:
                pause = every = min(max(wanted, 1.0), 300.0) if wanted else own

    async def _renew(self) -> None:
        """Register again before our credentials run out; that is how they are renewed."""
        while True:
            ends = self._credentials.expires_at if self._credentials else None
            if ends is None or self._identity.own_credentials:
                await asyncio.sleep(LOOK_AGAIN)  # nothing to renew yet
                continue
            await asyncio.sleep(max(REFRESH_AT * (ends - time.time()), 1.0))
            if not await self._renewed():
                await asyncio.sleep(REFRESH_AGAIN)

    async def _renew_when_refused(self, link: Link) -> None:
        """Credentials that NATS refuses, or their lack, are a reason to ask for others."""
        for attempt in itertools.count():
            await link.refused.wait()
            await asyncio.sleep(backoff(attempt))
            link.refused.clear()
            if await self._renewed():
                link.hurry()

    async def _renewed(self) -> bool:
        try:
            known = await self._joining.once()
        except ManagerError as refusal:
            log.warning("credentials not renewed", extra={"reason": str(refusal)})
            if refusal.status in UNKNOWN:
                self._lost.set()
            return False
        if self.known and known.id != self.known.id:
            self._lost.set()
            return False
        self.known = known
        return known.credentials is not None

    async def _leave(self) -> None:
        """Let the manager send nothing new, finish what is under way, stop what runs."""
        self.beating = False
        self.desk.leaving = True
        log.info("leaving")
        if self.known:
            with suppress(TimeoutError):
                async with asyncio.timeout(LEAVING):
                    await self._say_goodbye(self.known.id)
        with suppress(TimeoutError):
            async with asyncio.timeout(IN_FLIGHT):
                await self.desk.operations.settled()
                if self.link:
                    await self.link.settled()

    async def _say_goodbye(self, node_id: str) -> None:
        try:
            await self._manager.drain(node_id)
            await self._drained(node_id)
        except ManagerError as refusal:
            log.warning("drain refused", extra={"reason": str(refusal)})
        try:
            await self._manager.deregister(node_id)
        except ManagerError as refusal:
            log.warning("not deregistered", extra={"reason": str(refusal)})

    async def _drained(self, node_id: str) -> None:
        ends = time.monotonic() + DRAIN
        while await self._manager.in_flight(node_id) and time.monotonic() < ends:
            await asyncio.sleep(1)


async def _end(tasks: list[asyncio.Task[object]]) -> None:
    """Cancel until they are over: wait_for of Python 3.11, inside nats-py, may swallow one."""
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=1)
    await asyncio.gather(*tasks, return_exceptions=True)
