"""How the server is reached: address, credentials, encryption."""

import asyncio
import os
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured
from nats import errors
from nats.aio.client import RawCredentials

from clustermgr.conf import ClusterSettings
from clustermgr.lib.bus.client import StrictClient

# The client never reconnects. nats-py's own reconnect would send minutes late what it buffered
# while it was cut off, and it gives up for good once the server says no, as it does when a JWT
# expires.
BEHAVIOUR: dict[str, Any] = {
    "allow_reconnect": False,
    "max_reconnect_attempts": 1,  # and tries twice even so; 0 would mean for ever
    "reconnect_time_wait": 0,
    "pending_size": 0,
    "connect_timeout": 5,  # seconds, for each step of the handshake
    "ping_interval": 20,  # seconds; a server that left three unanswered is gone
}


def check(cluster: ClusterSettings) -> None:
    """Refuse settings that can never work; files may still come and go while we run."""
    _address(cluster.nats_url)
    if bool(cluster.nats_cert) != bool(cluster.nats_key):
        raise ImproperlyConfigured("CLUSTER_NATS_CERT and CLUSTER_NATS_KEY need each other.")


async def dial(
    cluster: ClusterSettings,
    *,
    on_error: Callable[[Exception], Awaitable[None]],
    closed: asyncio.Event,
) -> StrictClient:
    """Connect once; `closed` is set when that is over, and then the caller dials again."""

    async def on_closed() -> None:
        closed.set()

    options = {**BEHAVIOUR, **_whom(cluster), "tls": _tls(cluster)}
    client = StrictClient(encrypt=_encrypted(cluster))
    try:
        await client.connect(**options, error_cb=on_error, closed_cb=on_closed)
        if not client.is_connected:  # the server hung up where a PONG was due
            raise client.last_error or errors.UnexpectedEOF()
    except BaseException:
        await client.hang_up()
        raise
    return client


def _address(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"nats", "tls"} and parts.hostname and parts.port != 0
    except ValueError:  # its words may quote a piece of the password
        usable = False
    if not usable:
        raise ImproperlyConfigured(
            "CLUSTER_NATS_URL must look like nats://user:password@host:4222 or tls://...; "
            "percent-encode special characters in the password."
        )
    return parts


def _encrypted(cluster: ClusterSettings) -> bool:
    by_file = cluster.nats_ca or cluster.nats_cert
    return bool(by_file) or _address(cluster.nats_url).scheme == "tls"


def _whom(cluster: ClusterSettings) -> dict[str, Any]:
    """Where to and as whom; the URL without its secrets, so that no message can repeat them."""
    parts = _address(cluster.nats_url)
    server = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    options = {"servers": server, "name": f"clustermgr-{os.getpid()}"}
    if cluster.nats_credentials:
        return {**options, "user_credentials": _credentials(Path(cluster.nats_credentials))}
    if parts.username is None:
        return options
    name = unquote(parts.username)
    if parts.password is None:
        return {**options, "token": name}
    return {**options, "user": name, "password": unquote(parts.password)}


def _credentials(path: Path) -> RawCredentials:
    # Read here, afresh for every attempt: nats-py loops for ever over a file without the marks.
    text = "\n".join(path.read_text(errors="replace").splitlines()) + "\n"
    if "BEGIN NATS USER JWT" not in text or "BEGIN USER NKEY SEED" not in text:
        raise errors.InvalidUserCredentialsError
    return RawCredentials(text)


def _tls(cluster: ClusterSettings) -> ssl.SSLContext | None:
    if not _encrypted(cluster):
        return None
    context = ssl.create_default_context(cafile=cluster.nats_ca or None)
    if cluster.nats_cert:
        context.load_cert_chain(cluster.nats_cert, cluster.nats_key)
    return context
