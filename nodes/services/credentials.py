"""Each node's own key to the bus: minted when it is let in, withdrawn when it is sent away."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction

from clustermgr.lib import text
from clustermgr.lib.natsauth import Key, Kind, encode, user_claims
from clustermgr.lib.queue import after_commit
from nodes.models import BackendNode, BusAccount, NodeCredential
from nodes.services import events, facts
from nodes.wire.permissions import permissions_of, role_of
from nodes.wire.subjects import sanitise

# An answer that comes a little later than we wait for it is refused by us, not by the server.
LATENESS = timedelta(minutes=5)
# Expired ones that nobody revoked tell nothing after this.
KEPT = timedelta(days=7)


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What a worker connects with; both empty when it gets none."""

    jwt: str = field(default="", repr=False)
    seed: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What a node's page tells about its credentials."""

    live: int
    expires_at: datetime | None
    still_open: int  # revoked, and NATS does not know it yet
    trouble: str


def minting() -> bool:
    """Whether nodes get credentials; without, whoever reaches the bus is on it."""
    return bool(settings.CLUSTER.nats_account_seed)


@transaction.atomic
def mint(node: BackendNode, *, now: datetime) -> Credentials:
    """Make a fresh credential for a node that was let in; nobody else gets one.

    Earlier ones stay good: the worker that renews is connected with the one before. We keep the
    public key and forget the seed.
    """
    if not minting():
        return Credentials()
    facts.hold(node)  # a retirement that comes later finds the row below
    if node.approved_at is None or node.retired_at is not None:
        return Credentials()
    cluster, user = settings.CLUSTER, Key.generate(Kind.USER)
    row = NodeCredential.objects.create(
        node=node,
        public_key=user.public,
        issued_at=now,
        expires_at=now + cluster.nats_worker_jwt_ttl,
    )
    after = {"public_key": user.public, "expires_at": row.expires_at}
    events.record("node.credential_issued", actor=events.SYSTEM, now=now, node=node, after=after)
    return Credentials(jwt=_token(node, user, row), seed=user.seed)


@transaction.atomic
def revoke(node: BackendNode, *, by: str, reason: str, now: datetime) -> int:
    """Cut the node off the bus; approved, it gets a new credential when it registers again."""
    why = text.reason(reason)
    facts.hold(node)
    count = withdraw(node, by=by, reason=why, now=now)
    if count:
        after = {"credentials": count}
        events.record(
            "node.credentials_revoked", actor=by, now=now, node=node, reason=why, after=after
        )
    return count


def withdraw(node: BackendNode, *, by: str, reason: str, now: datetime) -> int:
    """Revoke what is live, inside the transaction of whoever holds the node; tell how many."""
    rows = NodeCredential.objects.live(now).filter(node=node)
    count = rows.update(revoked_at=now, revoked_by=by, revoke_reason=reason[:255])
    if count:
        after_commit("nodes.push_revocations")
    return count


def standing(node: BackendNode, *, now: datetime) -> Standing:
    live = NodeCredential.objects.live(now).filter(node=node)
    ends = list(live.order_by("expires_at").values_list("expires_at", flat=True))
    still_open = NodeCredential.objects.to_refuse(now).filter(node=node, cut_off_at=None).count()
    account = BusAccount.objects.first() if still_open else None
    return Standing(
        live=len(ends),
        expires_at=ends[-1] if ends else None,
        still_open=still_open,
        trouble=account.trouble if account else "",
    )


def forget_old(*, now: datetime) -> int:
    """Drop what expired by itself; revoked ones stay, they are history. The tidy tick calls it."""
    old = NodeCredential.objects.filter(revoked_at=None, expires_at__lt=now - KEPT)
    rows, _ = old.delete()
    return rows


def _token(node: BackendNode, user: Key, row: NodeCredential) -> str:
    cluster = settings.CLUSTER
    account = Key.from_seed(cluster.nats_account_seed, Kind.ACCOUNT)
    permissions = permissions_of(
        role_of(node.node_type), node.pk, answer_within=cluster.longest_answer + LATENESS
    )
    return encode(
        user_claims(permissions, account=account.public, expires_at=row.expires_at),
        subject=user.public,
        name=f"localai-{node.node_type}-{sanitise(str(node.pk))}",
        by=account,
        now=row.issued_at,
    )
