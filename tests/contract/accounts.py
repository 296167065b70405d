"""An operator, an account and users for a NATS server in operator mode, made in memory."""

import base64
import json
import os
import time
from pathlib import Path
from typing import Any

import nkeys

UNLIMITED = {"subs": -1, "data": -1, "payload": -1}
ACCOUNT_LIMITS = {
    **UNLIMITED,
    **{"imports": -1, "exports": -1, "wildcards": True, "conn": -1, "leaf": -1},
}


class Key:
    """An nkey pair that signs JWTs."""

    def __init__(self, kind: int) -> None:
        self.seed: bytes = nkeys.encode_seed(os.urandom(32), kind)
        self._pair = nkeys.from_seed(bytearray(self.seed))
        self.public: str = self._pair.public_key.decode()

    def sign(self, *, subject: "Key", name: str, nats: dict[str, Any], **claims: Any) -> str:
        standard = {"iat": int(time.time()), "iss": self.public, "sub": subject.public}
        body = {**standard, "jti": name, "name": name, **claims, "nats": {**nats, "version": 2}}
        head = _base64(json.dumps({"typ": "JWT", "alg": "ed25519-nkey"}).encode())
        signed = f"{head}.{_base64(json.dumps(body).encode())}"
        return f"{signed}.{_base64(self._pair.sign(signed.encode()))}"


class Operator:
    """One operator with one account; `configuration` makes a server trust it."""

    def __init__(self) -> None:
        self._key = Key(nkeys.PREFIX_BYTE_OPERATOR)
        self._account = Key(nkeys.PREFIX_BYTE_ACCOUNT)

    def configuration(self) -> dict[str, Any]:
        limits = {"type": "account", "limits": ACCOUNT_LIMITS}
        account = self._key.sign(subject=self._account, name="cluster", nats=limits)
        return {
            "authorization": None,
            "operator": self._key.sign(subject=self._key, name="us", nats={"type": "operator"}),
            "resolver": "MEMORY",
            "resolver_preload": {self._account.public: account},
        }

    def write_credentials(self, path: Path, *, nats: dict[str, Any], **claims: Any) -> str:
        """Mint a user into a .creds file and return its path."""
        user = Key(nkeys.PREFIX_BYTE_USER)
        rights = {**UNLIMITED, "type": "user", "issuer_account": self._account.public, **nats}
        jwt = self._account.sign(subject=user, name=path.stem, nats=rights, **claims)
        parts = {"NATS USER JWT": jwt, "USER NKEY SEED": user.seed.decode()}
        path.write_text(
            "\n".join(
                f"-----BEGIN {label}-----\n{text}\n------END {label}------\n"
                for label, text in parts.items()
            )
        )
        return str(path)


def _base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
