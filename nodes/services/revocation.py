"""Makes NATS refuse what we revoked: the rows say what, the account's JWT on the server says it.

Looked up before it is written, so that a server that lost or never got a revocation is mended by
the next tick, and so that whatever else an operator put into the account stays there.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Protocol

from django.db import transaction

from clustermgr.lib.errors import BusError, BusRefused
from nodes.models import BusAccount, NodeCredential
from nodes.services import events, refusals

Revocations = dict[str, int]


class Account(Protocol):
    """clustermgr.lib.bus.accounts.AccountServer."""

    def read(self) -> dict[str, Any]: ...
    def replace(self, claims: dict[str, Any], *, now: datetime) -> None: ...


def push(connect: Callable[[], AbstractContextManager[Account]], *, now: datetime) -> bool:
    """Have the server refuse what is revoked; False: it was not told, and people are.

    Two of these at once may overtake each other, and the older list may win. Each looks at the
    rows again when it is done, so the last one leaves what the rows say.
    """
    wanted = _wanted(now)
    if not wanted:
        return True
    try:
        with connect() as account:
            while True:
                _tell(account, wanted, now=now)
                if (told := wanted) == (wanted := _wanted(now)):
                    break
    except (BusError, BusRefused) as problem:
        _remember_trouble(str(problem), now=now)
        return False
    _remember_success(told, now=now)
    return True


def merged(current: Mapping[str, int], *, wanted: Revocations, ours: set[str]) -> Revocations:
    """What the server knows, without those of ours that expired, with those that are wanted.

    What is not ours was revoked by an operator with tools of his own.
    """
    return {key: at for key, at in current.items() if key not in ours} | wanted


def _wanted(now: datetime) -> Revocations:
    rows = NodeCredential.objects.to_refuse(now)
    # A token counts as revoked when it was issued no later than this. The clock of the process
    # that minted it may have been ahead of the one that revoked it.
    return {
        row.public_key: int(max(row.issued_at, row.revoked_at or now).timestamp()) for row in rows
    }


def _tell(account: Account, wanted: Revocations, *, now: datetime) -> None:
    claims = account.read()
    current = claims["nats"].get("revocations") or {}
    known = NodeCredential.objects.filter(public_key__in=list(current))
    ours = set(known.values_list("public_key", flat=True))
    if (after := merged(current, wanted=wanted, ours=ours)) != current:
        account.replace({**claims, "nats": {**claims["nats"], "revocations": after}}, now=now)


@transaction.atomic
def _remember_success(told: Revocations, *, now: datetime) -> None:
    NodeCredential.objects.filter(public_key__in=list(told), cut_off_at=None).update(cut_off_at=now)
    BusAccount.objects.update_or_create(
        pk=1, defaults={"told_at": now, "trouble_since": None, "trouble": ""}
    )


def _remember_trouble(problem: str, *, now: datetime) -> None:
    with transaction.atomic():
        account, _ = BusAccount.objects.get_or_create(pk=1)
        since = account.trouble_since or now
        BusAccount.objects.filter(pk=1).update(trouble_since=since, trouble=problem)
    if NodeCredential.objects.to_refuse(now).filter(cut_off_at=None).exists():
        refusals.note(
            "bus.revocation_failed",
            who="bus",
            actor=events.SYSTEM,
            subject="NATS",
            reason=f"Revoked credentials still work until NATS knows: {problem}",
            now=now,
        )
