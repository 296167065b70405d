"""What one backend process can be asked over gRPC, from threads. Knows the wire, never a row.

"busy" is alive: a backend with one thread does not answer while it works. Only a connection that
nobody takes is "gone".
"""

import enum
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import grpc
from django.db import connection
from google.protobuf import json_format

from clustermgr.lib.errors import DomainError, Interrupted, InvalidInput
from clustermgr.lib.text import readable
from worker.rpc import backend_pb2 as pb
from worker.rpc import backend_pb2_grpc
from worker.rpc.client import BRIEFLY, OK, OPTIONS

PROBE_WITHIN = timedelta(seconds=1)
LOOK_EVERY = timedelta(milliseconds=500)
UNSAID = "The backend gave no reason."
WORDS = 4000  # of a backend's last ones; some send all that it printed

_leaving = threading.Event()


class Health(enum.Enum):
    ALIVE = "alive"
    BUSY = "busy"
    GONE = "gone"


class LoadRefused(DomainError):
    """The backend answered, or ended: this load is over, and it failed."""

    code = "load_refused"
    http_status = 502


class LoadUnanswered(DomainError):
    """Nobody waits any longer, and the backend may still be at it: its process has to go."""

    code = "load_unanswered"
    http_status = 504


def model_options(given: Mapping[str, Any], *, model: str) -> pb.ModelOptions:
    """The wire's message from its fields by name; a model without a name of its own gets ours."""
    try:
        options = json_format.ParseDict(dict(given), pb.ModelOptions())
    except json_format.ParseError as error:
        raise InvalidInput(
            f"The options of {model} are not what a backend takes: {error}"
        ) from error
    options.Model = options.Model or model
    return options


def load(
    address: str,
    options: pb.ModelOptions,
    *,
    token: str,
    within: timedelta,
    abandoned: Callable[[], bool] = lambda: False,
) -> None:
    """Have the process load a model and wait for it, until `within` or `abandoned`.

    Go backends refuse with a status, Python ones with an OK and success=false: both are looked at.
    """
    with _asking(address) as stub:
        call = stub.LoadModel.future(
            options, timeout=within.total_seconds(), metadata=_metadata(token)
        )
        result = _outcome(call, within=within, abandoned=abandoned)
    if not result.success:
        raise LoadRefused(_words(result.message))


def health(address: str, *, token: str, within: timedelta = PROBE_WITHIN) -> Health:
    """Alive, busy or gone; a refusal of our token comes from somebody who lives."""
    with _asking(address) as stub:
        try:
            reply = stub.Health(
                pb.HealthMessage(), timeout=within.total_seconds(), metadata=_metadata(token)
            )
        except grpc.RpcError as error:
            gone = error.code() == grpc.StatusCode.UNAVAILABLE
            return Health.GONE if gone else Health.BUSY
    return Health.ALIVE if reply.message == OK else Health.BUSY


def refuses(address: str, *, within: timedelta = PROBE_WITHIN) -> bool:
    """Whether its machine says that nobody listens there; silence and no way there say nothing."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=within.total_seconds()):
            return False
    except ConnectionRefusedError:
        return True
    except (OSError, ValueError, OverflowError):
        return False


def has_model(address: str, *, token: str) -> bool:
    """Whether it says that a model is loaded; one that cannot say so has none for us."""
    with _asking(address) as stub:
        try:
            status = stub.Status(
                pb.HealthMessage(), timeout=BRIEFLY.total_seconds(), metadata=_metadata(token)
            )
        except grpc.RpcError:
            return False
    state = pb.StatusResponse.State
    return status.state in (state.READY, state.BUSY)


def stop_waiting() -> None:
    """End every wait of this process, for its shutdown: a thread cannot be killed."""
    _leaving.set()


@contextmanager
def _asking(address: str) -> Iterator[Any]:  # protoc writes no types for stubs
    if connection.in_atomic_block:
        raise RuntimeError("No network in a transaction: commit first, then ask, then write.")
    with grpc.insecure_channel(address, options=OPTIONS) as channel:
        yield backend_pb2_grpc.BackendStub(channel)  # type: ignore[no-untyped-call]


def _metadata(token: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"),) if token else ()


def _outcome(call: Any, *, within: timedelta, abandoned: Callable[[], bool]) -> pb.Result:
    while True:
        try:
            result: pb.Result = call.result(timeout=LOOK_EVERY.total_seconds())
        except grpc.FutureTimeoutError:
            if _leaving.is_set():
                call.cancel()
                raise Interrupted("Our process ends; somebody goes on.") from None
            if abandoned():
                call.cancel()
                raise LoadUnanswered("Nobody wants it any more.") from None
        except grpc.RpcError as error:
            raise _reason(error, within) from error
        else:
            return result


def _reason(error: Any, within: timedelta) -> DomainError:  # a Call as well as an RpcError
    words = _words(error.details())
    match error.code():
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            minutes = within.total_seconds() / 60
            return LoadUnanswered(f"The backend was still loading after {minutes:.0f} minutes.")
        case grpc.StatusCode.CANCELLED:
            return LoadUnanswered(f"The load was called off: {words}")
        case grpc.StatusCode.UNAVAILABLE:
            return LoadRefused(f"The backend process ended or cannot be reached: {words}")
    return LoadRefused(f"{words} ({error.code().name})")


def _words(told: str | None) -> str:
    """Cleaned where they come in: a byte that no row can hold must not keep a load from ending."""
    return readable(told or "", limit=WORDS) or UNSAID
