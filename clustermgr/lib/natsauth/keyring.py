"""The files behind a locked-down bus: made once, kept for ever, readable only by their owner."""

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from clustermgr.lib.natsauth.claims import (
    account_claims,
    credentials_file,
    decode,
    encode,
    operator_claims,
    read_credentials,
    user_claims,
)
from clustermgr.lib.natsauth.keys import Key, Kind
from clustermgr.lib.natsauth.permissions import SERVICE, SYSTEM, Permissions


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyring:
    """Operator, two accounts and their users; `made` names what is new.

    The operator's own key signs itself once and is never needed again: accounts are signed by
    a key that can be replaced.
    """

    home: Path
    operator: Key
    signing: Key
    account: Key
    system: Key
    operator_jwt: str
    account_jwt: str
    system_jwt: str
    made: tuple[str, ...]

    @classmethod
    def open(cls, home: Path, *, now: datetime) -> Self:
        """Read the files; make those that are missing and touch no other."""
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        files = _Files(home)
        operator = files.key("operator.seed", Kind.OPERATOR)
        signing = files.key("operator-signing.seed", Kind.OPERATOR)
        account = files.key("account.seed", Kind.ACCOUNT)
        system = files.key("system.seed", Kind.ACCOUNT)
        trusts = operator_claims(signing_keys=[signing.public], system_account=system.public)
        operator_jwt = files.token("operator.jwt", trusts, about=operator, by=operator, now=now)
        account_jwt = files.token(
            "account.jwt", account_claims(), about=account, by=signing, now=now
        )
        system_jwt = files.token("system.jwt", account_claims(), about=system, by=signing, now=now)
        files.user("service.creds", SERVICE, of=account, now=now)
        files.user("system.creds", SYSTEM, of=system, now=now)
        return cls(
            home=home,
            operator=operator,
            signing=signing,
            account=account,
            system=system,
            operator_jwt=operator_jwt,
            account_jwt=account_jwt,
            system_jwt=system_jwt,
            made=tuple(files.made),
        )

    @property
    def service_credentials(self) -> Path:
        return self.home / "service.creds"

    def server_configuration(self, resolver: Path) -> dict[str, Any]:
        """What makes a server trust us and nobody else; JSON is NATS configuration, too.

        Type `full`: the server keeps account JWTs in a directory and takes newer ones while it
        runs, so a revocation survives its restart. The ones here are only the first.
        """
        return {
            "operator": self.operator_jwt,
            "system_account": self.system.public,
            "resolver": {"type": "full", "dir": str(resolver), "allow_delete": False},
            "resolver_preload": {
                self.account.public: self.account_jwt,
                self.system.public: self.system_jwt,
            },
        }

    def settings(self) -> dict[str, str]:
        """What a manager must know to use the bus, to mint, and to revoke."""
        return {
            "CLUSTER_NATS_CREDENTIALS": str(self.service_credentials),
            "CLUSTER_NATS_ACCOUNT_SEED_FILE": str(self.home / "account.seed"),
            "CLUSTER_NATS_OPERATOR_SEED_FILE": str(self.home / "operator-signing.seed"),
            "CLUSTER_NATS_SYSTEM_CREDENTIALS": str(self.home / "system.creds"),
        }


class _Files:
    """A directory in which no key is ever overwritten."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.made: list[str] = []

    def key(self, name: str, kind: Kind) -> Key:
        return Key.from_seed(self._once(name, lambda: Key.generate(kind).seed), kind)

    def token(
        self, name: str, claims: dict[str, Any], *, about: Key, by: Key, now: datetime
    ) -> str:
        def sign() -> str:
            return encode(claims, subject=about.public, name=_title(name), by=by, now=now)

        return self._once(name, sign)

    def user(self, name: str, permissions: Permissions, *, of: Key, now: datetime) -> None:
        """Credentials; those of an earlier version that allow other things are signed anew."""

        def mint(user: Key) -> str:
            claims = user_claims(permissions, account=of.public)
            token = encode(claims, subject=user.public, name=_title(name), by=of, now=now)
            return credentials_file(token, user.seed)

        text = self._once(name, lambda: mint(Key.generate(Kind.USER)))
        token, seed = read_credentials(text)
        allowed = decode(token)["nats"]
        if any(allowed.get(key) != value for key, value in permissions.claims().items()):
            _replace(self._home / name, mint(Key.from_seed(seed, Kind.USER)) + "\n")
            self.made.append(name)

    def _once(self, name: str, make: Callable[[], str]) -> str:
        path = self._home / name
        if not path.exists() and write_new(path, make() + "\n"):
            self.made.append(name)
        return path.read_text().strip()


def _title(name: str) -> str:
    return f"clustermgr-{name.partition('.')[0]}"


def write_new(path: Path, text: str) -> bool:
    """Create `path` whole, for its owner only; False when somebody else was first."""
    draft = _draft(path, text)
    try:
        os.link(draft, path)  # fails where rename would replace
    except FileExistsError:
        return False
    finally:
        os.unlink(draft)
    return True


def _replace(path: Path, text: str) -> None:
    os.rename(_draft(path, text), path)


def _draft(path: Path, text: str) -> str:
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=".draft-")  # mode 0600
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    return draft
