"""Where commands come in as bytes and leave as bytes; whatever is in them, the worker lives on."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial

from worker.commands.installing import Installing
from worker.commands.looking import Looking
from worker.commands.operations import Answer, Operations
from worker.commands.progress import Publish, Ticker
from worker.commands.stopping import Stopping
from worker.machine import Backends, Processes, Refused, Step, Tell
from worker.models import Models
from worker.wire import replies, requests, subjects
from worker.wire.reading import BadMessage

log = logging.getLogger(__name__)

LEAVING = "the worker is shutting down"

Command = Callable[[bytes], Awaitable[replies.Reply | None]]
Handle = Callable[[bytes], Awaitable[bytes | None]]
Refusal = Callable[[str], replies.Reply | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Everything that commands are about."""

    backends: Backends
    processes: Processes
    models: Models
    host: str  # that others reach our processes at


class Desk:
    """The commands of one node. Lives longer than a connection, and than a node's id."""

    def __init__(self, machine: Machine, *, on_stop: Callable[[], None]) -> None:
        self.machine = machine
        self.operations = Operations()
        self.leaving = False  # nothing new is begun
        self._on_stop = on_stop
        self._looking = Looking(machine.backends, machine.processes)
        self._stopping = Stopping(machine.backends, machine.processes)
        self._installing = Installing(
            machine.backends, machine.processes, self._stopping, machine.host, self.operations
        )

    def handlers(self, node_id: str, publish: Publish) -> Mapping[str, Handle]:
        """Path of a subject -> what to do with a message on it."""
        tickers = partial(Ticker, publish, node_id=node_id)
        table: dict[str, tuple[Command, Refusal]] = {
            subjects.INSTALL: (partial(self._install, tickers), _no_install),
            subjects.UPGRADE: (partial(self._upgrade, tickers), _no_change),
            subjects.DELETE_BACKEND: (self._delete, _no_change),
            subjects.CANCEL: (self._cancel, _no_cancel),
            subjects.LIST_BACKENDS: (self._list, _no_list),
            subjects.RUNNING_MODELS: (self._running, _no_running),
            subjects.UNLOAD_MODEL: (self._unload, _no),
            subjects.STOP_MODEL: (self._stop_model, _no_stop),
            subjects.DELETE_MODEL: (self._delete_model, _no),
            subjects.STOP_BACKEND: (self._stop, _nothing),
            subjects.STOP_NODE: (self._stop_node, _nothing),
        }
        return {path: partial(_answered, path, *entry) for path, entry in table.items()}

    async def _install(self, tickers: Callable[..., Ticker], payload: bytes) -> replies.Reply:
        request = requests.InstallRequest.decode(payload)
        install = partial(self._installing.install, request)
        return await self._followed(subjects.INSTALL, request, install, tickers)

    async def _upgrade(self, tickers: Callable[..., Ticker], payload: bytes) -> replies.Reply:
        request = requests.UpgradeRequest.decode(payload)
        upgrade = partial(self._installing.upgrade, request)
        return await self._followed(subjects.UPGRADE, request, upgrade, tickers)

    async def _followed(
        self,
        verb: str,
        request: requests.Artifact,
        do: Callable[..., Awaitable[Answer]],
        tickers: Callable[..., Ticker],
    ) -> replies.Reply:
        """Do it once for each operation id, and tell how it goes."""
        if self.leaving:
            raise Refused(LEAVING)

        async def work() -> Answer:
            ticker = tickers(op_id=request.op_id, backend=request.backend)
            tell: Tell = ticker.tell
            tell(Step(phase="resolving"))  # at once: the manager knows that we heard it
            try:
                return await do(tell=tell)
            finally:
                await ticker.finish()

        return await self.operations.once(verb, request.op_id, work)

    async def _delete(self, payload: bytes) -> replies.Reply:
        return await self._installing.delete(requests.DeleteRequest.decode(payload))

    async def _cancel(self, payload: bytes) -> replies.Reply:
        return await self._installing.cancel(requests.CancelRequest.decode(payload))

    async def _list(self, _: bytes) -> replies.Reply:
        return self._looking.listed()

    async def _running(self, _: bytes) -> replies.Reply:
        return self._looking.running()

    async def _unload(self, payload: bytes) -> replies.Reply:
        """Free what runs at the address. LocalAI frees *any* process when there is none."""
        address = requests.UnloadRequest.decode(payload).address
        for process in self.machine.processes.running():
            # Ours only: nobody may have us dial the rest of the network
            if address in (process.loopback, f"{self.machine.host}:{process.port}"):
                await self.machine.processes.free(process.loopback)
        return replies.PlainReply(success=True)

    async def _stop_model(self, payload: bytes) -> replies.Reply:
        return await self._stopping.exactly(requests.ModelStopRequest.decode(payload))

    async def _delete_model(self, payload: bytes) -> replies.Reply:
        await self.machine.models.delete(requests.DeleteModelRequest.decode(payload).model_name)
        return replies.PlainReply(success=True)

    async def _stop(self, payload: bytes) -> None:
        await self._stopping.obey(requests.StopRequest.decode(payload))

    async def _stop_node(self, _: bytes) -> None:
        log.info("the manager asked us to leave")
        self._on_stop()


async def _answered(path: str, command: Command, refusal: Refusal, payload: bytes) -> bytes | None:
    """Carry a command out; every failure becomes a reply in the command's own shape."""
    try:
        reply = await command(payload)
    except (BadMessage, Refused) as words:
        log.info("refused", extra={"command": path, "reason": str(words)})
        reply = refusal(str(words))
    except Exception as bug:  # edge: one command must not take the others with it
        log.exception("command failed", extra={"command": path})
        reply = refusal(f"the worker failed: {type(bug).__name__}: {bug}")
    return reply.encode() if reply else None


def _no_install(words: str) -> replies.Reply:
    return replies.InstallReply(success=False, error=words)


def _no_change(words: str) -> replies.Reply:
    return replies.StoppingReply(success=False, error=words)


def _no_cancel(words: str) -> replies.Reply:
    return replies.CancelReply(cancelled=False, error=words)


def _no_list(words: str) -> replies.Reply:
    return replies.ListReply(backends=(), error=words)


def _no_running(words: str) -> replies.Reply:
    return replies.RunningReply(models=(), error=words)


def _no_stop(words: str) -> replies.Reply:
    return replies.ModelStopReply(
        matched=False, freed=False, terminated=False, process_key="", error=words
    )


def _no(words: str) -> replies.Reply:
    return replies.PlainReply(success=False, error=words)


def _nothing(_: str) -> None:
    return None
