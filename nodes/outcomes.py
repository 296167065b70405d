"""What became of a command: a worker's answer read as a typed result, or raised as a refusal."""

import logging
from dataclasses import dataclass

from clustermgr.lib.errors import BusError, InvalidInput, NodeRefused
from nodes import wire

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """A process runs, and nothing is loaded into it yet."""

    address: str  # "" from old workers: theirs is the node's own

    @classmethod
    def read(cls, answer: bytes) -> "Installed":
        reply = wire.InstallReply.decode(answer)
        _check(reply)
        return cls(address=reply.address)


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgraded:
    """The new files are there; the rows of exactly the `stopped` processes are history.

    Not `reports_stopped`: the worker is too old to say what it stopped. `fell_back`: it is older
    still, was told to install by force, and has also started a process.
    """

    stopped: tuple[wire.ProcessKey, ...]
    reports_stopped: bool
    fell_back: bool = False

    @classmethod
    def read(cls, answer: bytes) -> "Upgraded":
        reply = _check_stopping(answer)
        return cls(stopped=_keys(reply), reports_stopped=reply.reports_stopped_processes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    """The files are gone; `stopped` and `reports_stopped` as for an upgrade."""

    stopped: tuple[wire.ProcessKey, ...]
    reports_stopped: bool

    @classmethod
    def read(cls, answer: bytes) -> "Deleted":
        reply = _check_stopping(answer)
        return cls(stopped=_keys(reply), reports_stopped=reply.reports_stopped_processes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactStop:
    """How the stop of one process went; only `terminated` says that it is gone.

    Not matched and terminated: there was none. Matched and not terminated: it lives, and
    `error` says why (another address, already stopping, survived).
    """

    matched: bool
    freed: bool
    terminated: bool
    error: str

    @classmethod
    def read(cls, answer: bytes) -> "ExactStop":
        reply = wire.ModelStopReply.decode(answer)
        return cls(
            matched=reply.matched,
            freed=reply.freed,
            terminated=reply.terminated,
            error=reply.error,
        )


class RefusedAfterStopping(NodeRefused):
    """The upgrade or delete failed, but these processes were stopped before it did."""

    code = "node_refused_after_stopping"

    def __init__(self, words: str, *, stopped: tuple[wire.ProcessKey, ...] = ()) -> None:
        super().__init__(words)
        self.stopped = stopped


def done(answer: bytes) -> None:
    """Return if the worker says that it was done."""
    _check(wire.PlainReply.decode(answer))


def installed_backends(answer: bytes) -> tuple[wire.InstalledBackend, ...]:
    """The list, unless the worker says that it cannot tell."""
    reply = wire.ListReply.decode(answer)
    if reply.error:
        raise NodeRefused(reply.error)
    return reply.backends


def backends_or_reason(
    answer: bytes | BusError,
) -> tuple[wire.InstalledBackend, ...] | BusError | NodeRefused:
    """The list, or why there is none: one node among many must not spoil it for the others."""
    if isinstance(answer, BusError):
        return answer
    try:
        return installed_backends(answer)
    except NodeRefused as refusal:
        return refusal


def running_or_reason(
    answer: bytes | BusError,
) -> tuple[wire.RunningModel, ...] | BusError | NodeRefused:
    """The processes, or why they are not known."""
    if isinstance(answer, BusError):
        return answer
    try:
        return wire.decode_running(answer)
    except NodeRefused as refusal:
        return refusal


def _check(reply: wire.InstallReply | wire.PlainReply) -> None:
    if not reply.success:
        raise NodeRefused(_words(reply.error))


def _check_stopping(answer: bytes) -> wire.StoppingReply:
    reply = wire.StoppingReply.decode(answer)
    if reply.success:
        return reply
    if reply.reports_stopped_processes:
        raise RefusedAfterStopping(_words(reply.error), stopped=_keys(reply))
    raise NodeRefused(_words(reply.error))


def _words(error: str) -> str:
    return error or "The worker refused and gave no reason."


def _keys(reply: wire.StoppingReply) -> tuple[wire.ProcessKey, ...]:
    """What certainly ended; a key that makes no sense is left to the next look at the node."""
    if not reply.reports_stopped_processes:
        return ()
    known = []
    for key in reply.stopped_process_keys:
        try:
            known.append(wire.ProcessKey.parse(key))
        except InvalidInput:
            log.info("process key skipped", extra={"key": key})
    return tuple(known)
