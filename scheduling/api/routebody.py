"""A request for a replica, and its answer, as JSON; the same for the door and for Django."""

from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

import msgspec
from django.conf import settings

from clustermgr.lib.errors import InvalidInput, TooLarge
from clustermgr.lib.text import checked, uuid_in
from scheduling.prefixes.chains import DEPTH, Chain, chain_of
from scheduling.routing.asks import LEAST, MOST, Ask, Lease

Body = TypeVar("Body", bound=msgspec.Struct)
MOST_BODY = 256 * 1024
MOST_LEASES = 1000


class RouteIn(msgspec.Struct, kw_only=True):
    model: str
    prompt_prefix: str = ""
    chain: list[int] = msgspec.field(default_factory=list)
    session: str = ""
    revision: str = ""
    timeout: float | None = None  # seconds to wait for a load
    ttl: float | None = None  # seconds the lease lives without a word


class RenewIn(msgspec.Struct, kw_only=True):
    ttl: float | None = None


class ReleaseIn(msgspec.Struct, kw_only=True):
    leases: list[str]


def read(body: bytes, shape: type[Body]) -> Body:
    """The body, or a refusal that says what is wrong with it."""
    if len(body) > MOST_BODY:
        raise TooLarge(f"A request may have {MOST_BODY} bytes.")
    try:
        return msgspec.json.decode(body or b"{}", type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"The body is not understood: {error}") from error
    except RecursionError as error:
        raise InvalidInput("The body is not understood: it is nested too deeply.") from error


def ask_of(given: RouteIn, *, holder: str) -> tuple[Ask, timedelta]:
    """What is asked for, and how long the caller waits for it."""
    ask = Ask(
        model=_name("model", given.model),
        holder=holder,
        ttl=ttl_of(given.ttl),
        chain=_chain(given),
        session=checked(given.session, field="session", limit=512),
        revision=checked(given.revision, field="revision", limit=255),
    )
    wait = settings.CLUSTER.route_wait if given.timeout is None else _wait(given.timeout)
    return ask, wait


def ttl_of(seconds: float | None) -> timedelta:
    if seconds is None:
        return settings.CLUSTER.route_lease
    if not LEAST.total_seconds() <= seconds <= MOST.total_seconds():
        raise InvalidInput(f"ttl must be from {LEAST.seconds} to {MOST.seconds} seconds.")
    return timedelta(seconds=seconds)


def leases_of(given: ReleaseIn) -> list[UUID]:
    """Which leases to end, each once; what is no lease's id is nobody's lease."""
    if len(given.leases) > MOST_LEASES:
        raise InvalidInput(f"At most {MOST_LEASES} leases can be released at once.")
    return [lease for lease in dict.fromkeys(map(uuid_in, given.leases)) if lease is not None]


def answer(lease: Lease) -> dict[str, Any]:
    return {
        "lease_id": str(lease.id),
        "model": lease.model,
        "node": {"id": str(lease.node), "name": lease.node_name},
        "replica": {"id": str(lease.replica), "index": lease.replica_index},
        "address": lease.address,
        "revision": lease.revision,
        "expires_at": lease.expires_at,
        "how": lease.how,
        "why": lease.why,
    }


def _name(field: str, value: str) -> str:
    if not value:
        raise InvalidInput(f"{field} is needed.")
    return checked(value, field=field, limit=255)


def _chain(given: RouteIn) -> Chain:
    """Of the prompt, or as the caller computed it: LocalAI's way, links of the same hash."""
    if not given.chain:
        return chain_of(given.prompt_prefix, model=given.model)
    links = set(given.chain)
    # Twice the same link is no chain: other processes refuse to hear of it
    if len(given.chain) > min(DEPTH, len(links)) or not all(0 <= link < 2**64 for link in links):
        raise InvalidInput(f"chain must have at most {DEPTH} numbers of 64 bits, none twice.")
    return tuple(given.chain)


def _wait(seconds: float) -> timedelta:
    if not 0 <= seconds <= MOST.total_seconds():
        raise InvalidInput(f"timeout must be from 0 to {MOST.seconds} seconds.")
    return timedelta(seconds=seconds)
