"""What can be refused, each with a stable code and the HTTP status that tells it."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar


class DomainError(Exception):
    """A refusal in a sentence: nothing was changed, and the caller may act on `code`."""

    code: ClassVar[str] = "refused"
    http_status: ClassVar[int] = 409
    retry_after: int | None = None  # seconds, where we know when asking again may help
    told: Mapping[str, Any] = MappingProxyType({})  # more for programs, beside the sentence


class InvalidMove(DomainError):
    """The row is not in a state from which this move is allowed."""

    code = "invalid_move"


class Conflict(DomainError):
    """Something that exists already stands in the way."""

    code = "conflict"


class PreconditionFailed(DomainError):
    """The caller edited a version that is no longer the current one."""

    code = "precondition_failed"
    http_status = 412


class InvalidInput(DomainError):
    """The request is well formed and means nothing we can do."""

    code = "invalid_input"
    http_status = 400


class TooLarge(DomainError):
    """More than anybody with a reason would send; it was not read to its end."""

    code = "too_large"
    http_status = 413


class Unauthenticated(DomainError):
    """No credential, or one we do not know."""

    code = "not_authenticated"
    http_status = 401


class Forbidden(DomainError):
    """A known caller asks for what it may not do."""

    code = "permission_denied"
    http_status = 403


class NotFound(DomainError):
    """There is no such thing, and there never was one we know of."""

    code = "not_found"
    http_status = 404


class Gone(DomainError):
    """It existed and was retired on purpose; coming back needs a new registration."""

    code = "gone"
    http_status = 410


class TooManyAttempts(DomainError):
    """The caller failed too often and must wait."""

    code = "too_many_attempts"
    http_status = 429


class BusError(DomainError):
    """The message could not be carried; its kinds must never be mixed up."""

    code = "bus_error"
    http_status = 503


class NotConnected(BusError):
    """*We* are cut off from NATS: says nothing about the node."""

    code = "bus_not_connected"


class NodeUnreachable(BusError):
    """Nobody listens on the subject: the worker is away, and the request was not delivered."""

    code = "node_unreachable"


class NodeSilent(BusError):
    """Delivered, no answer yet: the worker may still be at it. Not a failure."""

    code = "node_silent"
    http_status = 504


class NodeVanished(BusError):
    """Delivered, and then the worker stopped listening: it died at it, or is being restarted."""

    code = "node_vanished"


class NodeRestarted(NodeVanished):
    """Delivered, and who listens now is another process: the one that was asked died at it."""

    code = "node_restarted"


class Interrupted(BusError):
    """*We* are shutting down and stopped waiting: says nothing about the node."""

    code = "bus_interrupted"


class BusRefused(DomainError):
    """NATS itself said no, or is not set up for what was asked."""

    code = "bus_refused"
    http_status = 502


class NodeRefused(DomainError):
    """The worker answered, and the answer is an error or makes no sense: not evidence."""

    code = "node_refused"
    http_status = 502


class WorkerUnreachable(DomainError):
    """The worker's own HTTP server does not answer; it may still be reached over the bus."""

    code = "worker_unreachable"
    http_status = 502


class WorkerTokenUnknown(DomainError):
    """The worker would want a secret that we hold only as a digest."""

    code = "worker_token_unknown"


class Busy(DomainError):
    """We do this already as often as we can at once."""

    code = "busy"
    http_status = 503
