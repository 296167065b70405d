"""NATS JWTs of version 2: who may do what, signed by the next higher key.

LocalAI's worker reads its own token back and checks signature, algorithm and issuer before it
plans a renewal; a token that is merely good enough for the server would never be renewed.
"""

import base64
import hashlib
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from clustermgr.lib.natsauth import keys
from clustermgr.lib.natsauth.keys import Key
from clustermgr.lib.natsauth.permissions import Permissions

HEADER = {"typ": "JWT", "alg": "ed25519-nkey"}
STANDARD = ("aud", "exp", "iat", "iss", "name", "nbf", "sub")
VERSION = 2

NO_LIMITS = {"subs": -1, "data": -1, "payload": -1}
ACCOUNT_LIMITS = {
    **NO_LIMITS,
    **{"imports": -1, "exports": -1, "wildcards": True, "conn": -1, "leaf": -1},
}

Claims = dict[str, Any]


class BadToken(ValueError):
    """Not a NATS JWT, or not signed by whom it says."""


def operator_claims(*, signing_keys: list[str], system_account: str) -> Claims:
    """The root of trust; servers are configured with it."""
    nats = {"type": "operator", "signing_keys": signing_keys, "system_account": system_account}
    return {"nats": nats}


def account_claims(*, revocations: Mapping[str, int] | None = None) -> Claims:
    """A room of its own on the bus; revoked users are named by key with the time of it."""
    nats: Claims = {"type": "account", "limits": ACCOUNT_LIMITS}
    return {"nats": {**nats, "revocations": dict(revocations)} if revocations else nats}


def user_claims(
    permissions: Permissions, *, account: str, expires_at: datetime | None = None
) -> Claims:
    """One who may connect. `account` is named although it also signs: LocalAI names it."""
    nats = {**permissions.claims(), **NO_LIMITS, "issuer_account": account, "type": "user"}
    ends = {} if expires_at is None else {"exp": int(expires_at.timestamp())}
    return {**ends, "nats": nats}


def encode(claims: Mapping[str, Any], *, subject: str, name: str, by: Key, now: datetime) -> str:
    """Sign `claims` about `subject`."""
    said = {key: value for key, value in claims.items() if key != "nats"}
    body = {**said, "iat": int(now.timestamp()), "iss": by.public, "name": name, "sub": subject}
    nats = {**claims["nats"], "version": VERSION}
    whole = {**body, "jti": _identity(body), "nats": nats}
    signed = f"{_base64(_compact(HEADER))}.{_base64(_compact(whole))}"
    return f"{signed}.{_base64(by.sign(signed.encode()))}"


def decode(token: str) -> Claims:
    """Read a token and check that its issuer signed it; whether to trust him is not asked here."""
    try:
        head, body, signature = token.strip().split(".")
        header, claims = json.loads(_raw(head)), json.loads(_raw(body))
        issuer = claims["iss"]
        good = header["alg"] == HEADER["alg"] and isinstance(claims["nats"], dict)
        good = good and keys.verify(issuer, f"{head}.{body}".encode(), _raw(signature))
    except (ValueError, KeyError, TypeError, AttributeError):
        good = False
    if not good:
        raise BadToken("This is not a NATS JWT, or its signature is wrong.")
    read: Claims = claims
    return read


def credentials_file(token: str, seed: str) -> str:
    """The .creds format that every NATS client reads."""
    return "\n".join(
        f"-----BEGIN {label}-----\n{text}\n------END {label}------\n"
        for label, text in (("NATS USER JWT", token), ("USER NKEY SEED", seed))
    )


def read_credentials(text: str) -> tuple[str, str]:
    """Token and seed of a .creds file."""
    lines = [line.strip() for line in text.splitlines()]
    try:
        token, seed = (
            lines[lines.index(f"-----BEGIN {label}-----") + 1]
            for label in ("NATS USER JWT", "USER NKEY SEED")
        )
    except (ValueError, IndexError):
        raise BadToken("This is not a .creds file.") from None
    return token, seed


def _identity(body: Claims) -> str:
    """`jti`, as nats-io's library computes it: a digest of the standard claims in this order."""
    ordered = {key: body[key] for key in STANDARD if body.get(key)}
    digest = hashlib.new("sha512_256", _compact(ordered)).digest()
    return base64.b32encode(digest).rstrip(b"=").decode()


def _compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _raw(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
