"""Which user PostgreSQL runs as, and where that user may go."""

import os
import pwd
import stat
from dataclasses import dataclass
from pathlib import Path

# PostgreSQL refuses to run as root. `postgres` where a package made one, else the account
# that every Unix has; CLUSTER_POSTGRES_USER names another.
CANDIDATES = ("clustermgr", "postgres", "nobody")

# Ours alone; used only when root works in a place the account cannot enter.
SHARED_HOME = Path("/var/lib/clustermgr")


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """An unprivileged user that root can become."""

    name: str
    uid: int
    gid: int

    def popen(self) -> dict[str, object]:
        """The arguments that make `subprocess.Popen` run as this user."""
        return {"user": self.uid, "group": self.gid, "extra_groups": []}


def unprivileged(wanted: str | None = None) -> Account | None:
    """The account to become, or None when we are not root and stay who we are."""
    if os.geteuid() != 0:
        return None
    for name in (wanted,) if wanted else CANDIDATES:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(name=name, uid=entry.pw_uid, gid=entry.pw_gid)
    raise LookupError(f"PostgreSQL cannot run as root and there is no user {wanted or CANDIDATES}")


def can_enter(path: Path, account: Account | None) -> bool:
    """Whether `account` may traverse every directory down to `path` (ourselves: always)."""
    if account is None:
        return True
    resolved = path.resolve()
    return all(_may_traverse(step, account) for step in (resolved, *resolved.parents))


def _may_traverse(directory: Path, account: Account) -> bool:
    facts = directory.stat()
    if facts.st_uid == account.uid:
        return bool(facts.st_mode & stat.S_IXUSR)
    if facts.st_gid == account.gid:
        return bool(facts.st_mode & stat.S_IXGRP)
    return bool(facts.st_mode & stat.S_IXOTH)
