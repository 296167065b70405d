"""What a data directory remembers: its lock, its generated secrets, where it can be reached."""

import fcntl
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import IO, Self


class AlreadyRunning(Exception):
    """Another supervisor holds this data directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """Generated on the first start, kept for all later ones; the environment may override."""

    instance: str
    secret_key: str
    postgres_password: str
    admin_password: str
    api_token: str
    registration_token: str

    @classmethod
    def load(cls, data_dir: Path, env: Mapping[str, str]) -> Self:
        path = data_dir / "secrets.json"
        stored = json.loads(path.read_text()) if path.exists() else {}
        known = {name: stored[name] for name in (f.name for f in fields(cls)) if name in stored}
        kept = cls(**{**_generated(), **known})
        write_private(path, asdict(kept))
        given = {
            "admin_password": given_in(env, "CLUSTER_ADMIN_PASSWORD"),
            "api_token": given_in(env, "CLUSTER_API_TOKEN"),
            "registration_token": given_in(env, "CLUSTER_REGISTRATION_TOKEN"),
            "secret_key": given_in(env, "DJANGO_SECRET_KEY"),
        }
        return cls(**{**asdict(kept), **{name: value for name, value in given.items() if value}})


def given_in(env: Mapping[str, str], name: str) -> str | None:
    """The value of `name`, or the content of the file that `name_FILE` points at."""
    if name in env:
        return env[name] or None
    path = env.get(f"{name}_FILE")
    return Path(path).read_text().strip() if path else None


def _generated() -> dict[str, str]:
    return {
        "instance": secrets.token_hex(6),
        "secret_key": secrets.token_urlsafe(50),
        "postgres_password": secrets.token_urlsafe(18),
        "admin_password": secrets.token_urlsafe(12),
        "api_token": "cm_" + secrets.token_urlsafe(32),
        "registration_token": "jt_" + secrets.token_urlsafe(24),
    }


def open_data_dir(path: Path) -> IO[str]:
    """Create the directory, take its lock, and return the lock: it is held until closed.

    Others may pass through one that we made (0711), because PostgreSQL runs as another user when
    we are root; every file with a secret in it is 0600. One that was there is left as it is.
    """
    if not path.exists():
        path.mkdir(parents=True)
        path.chmod(0o711)
    lock = (path / "lock").open("a+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        raise AlreadyRunning(lock.read().strip()) from None
    lock.seek(0)
    lock.truncate()
    lock.write(str(os.getpid()))
    lock.flush()
    return lock


def write_private(path: Path, document: Mapping[str, object]) -> None:
    """Replace `path` at once and readable only by us, also in the moment of writing."""
    fresh = path.with_suffix(".new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        os.fchmod(file.fileno(), 0o600)
        json.dump(document, file, indent=2)
        file.write("\n")
    fresh.rename(path)
