"""Join tokens: issued once, kept as a digest, limited by their terms, revoked at once."""

import hashlib
import hmac
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NoReturn

from django.db import IntegrityError, transaction
from django.db.models import Q

from clustermgr.lib.errors import (
    Conflict,
    Forbidden,
    InvalidInput,
    TooManyAttempts,
    Unauthenticated,
)
from clustermgr.lib.sealing import seal
from clustermgr.lib.text import checked
from nodes.models import BackendNode, JoinToken
from nodes.services import events, refusals
from nodes.states import NodeType
from nodes.wire import check_labels

PREFIX = "jt_"
# A source that fails more often in a minute is told to wait. It is *not* locked out: a right
# token from there still works, because a whole fleet may sit behind one address and one wrong
# worker must not silence it. What keeps guessers out is the length of the secret.
FAILURES_ALLOWED = 20
# "Last used" answers "may I revoke this?"; to the minute is enough and spares a write a beat.
USED_EVERY = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a token allows; nothing said, nothing limited, and nobody approved by it."""

    expires_at: datetime | None = None
    max_nodes: int | None = None
    allowed_types: tuple[NodeType, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    auto_approve: bool = False
    one_machine: bool = False


def digest(secret: str) -> str:
    """High-entropy secrets need no salt; half a surrogate pair must not be a crash."""
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()


@transaction.atomic
def issue(
    name: str, *, by: str, now: datetime, terms: Terms | None = None
) -> tuple[JoinToken, str]:
    """Make a token; its secret is returned here and never again."""
    terms = terms or Terms()
    _check(name, terms, now)
    secret = PREFIX + secrets.token_urlsafe(32)
    token = JoinToken(
        name=name,
        digest=digest(secret),
        sealed=seal(secret),
        prefix=secret[:8],
        created_at=now,
        created_by=by,
        expires_at=terms.expires_at,
        max_nodes=terms.max_nodes,
        allowed_types=list(terms.allowed_types),
        labels=dict(terms.labels),
        auto_approve=terms.auto_approve,
        one_machine=terms.one_machine,
    )
    _insert(token)
    events.record("token.issued", actor=by, now=now, subject=name, after={"prefix": token.prefix})
    return token, secret


def authenticate(secret: str, *, source: str, now: datetime) -> JoinToken:
    """The live token behind `secret`, else a refusal that does not say why."""
    wanted = digest(secret)
    token = JoinToken.objects.filter(digest=wanted).first()
    # The index has compared digests, not secrets; this keeps even their timing out of reach.
    if token is None or not hmac.compare_digest(token.digest, wanted):
        _refuse(f"source {source}", source, "Unknown registration token.", now)
    if not usable(token, now):
        # Under the token's own name: an expired token that a fleet still uses must not hide
        # behind the noise of some other source.
        _refuse(f"token {token.name}", source, f"{_ending(token)} It is still being used.", now)
    if token.last_used_at is None or now - token.last_used_at > USED_EVERY:
        mark_used({token.digest}, now=now)
    return token


def usable(token: JoinToken, now: datetime) -> bool:
    """Neither revoked nor expired."""
    return token.revoked_at is None and (token.expires_at is None or token.expires_at > now)


def may_act_on(token: JoinToken, node: BackendNode) -> bool:
    """A token speaks only for the nodes that joined with it."""
    return node.join_token_id == token.pk


@transaction.atomic
def revoke(token: JoinToken, *, by: str, now: datetime, reason: str = "") -> None:
    """Stop `token` and every node that joined with it; revoking twice changes nothing."""
    live = JoinToken.objects.filter(pk=token.pk, revoked_at=None)
    if live.update(revoked_at=now, revoked_by=by):
        events.record("token.revoked", actor=by, now=now, subject=token.name, reason=reason)
    token.refresh_from_db()


def admit(token: JoinToken, *, name: str, node_type: str) -> None:
    """Refuse a registration that the token's terms do not allow; bind a one-machine token.

    Locks a token with a limit, so that two machines cannot take its last place together.
    """
    if token.allowed_types and node_type not in token.allowed_types:
        raise Forbidden(f"The token {token.name} does not admit nodes of type {node_type}.")
    if token.one_machine:
        _bind(token, name)
    if token.max_nodes is not None:
        JoinToken.objects.select_for_update(no_key=True).get(pk=token.pk)


def check_room(token: JoinToken) -> None:
    """Refuse when one more node has joined than the terms allow; the retired do not count."""
    if token.max_nodes is None:
        return
    if BackendNode.objects.present().filter(join_token=token).count() > token.max_nodes:
        raise Forbidden(f"The token {token.name} admits {token.max_nodes} nodes, all have joined.")


def _bind(token: JoinToken, name: str) -> None:
    JoinToken.objects.filter(pk=token.pk, bound_name="").update(bound_name=name)
    token.refresh_from_db(fields=["bound_name"])
    if token.bound_name != name:
        raise Forbidden(f"The token {token.name} belongs to another machine than {name}.")


def _check(name: str, terms: Terms, now: datetime) -> None:
    if not checked(name, field="The token's name", limit=100).strip():
        raise InvalidInput("The token needs a name.")
    if terms.max_nodes is not None and not 1 <= terms.max_nodes <= 2**31 - 1:
        raise InvalidInput("max_nodes must be a positive number, or empty for no limit.")
    if terms.expires_at is not None and terms.expires_at <= now:
        raise InvalidInput("The token would have expired before it was issued.")
    check_labels(terms.labels)


def _insert(token: JoinToken) -> None:
    try:
        with transaction.atomic():
            token.save(force_insert=True)
    except IntegrityError as error:
        raise Conflict(f"There already is a join token named {token.name}.") from error


def mark_used(digests: Collection[str], *, now: datetime) -> None:
    """Note that these tokens are in use, at most once in USED_EVERY."""
    known = JoinToken.objects.filter(digest__in=digests)
    long_ago = Q(last_used_at=None) | Q(last_used_at__lte=now - USED_EVERY)
    known.filter(long_ago).update(last_used_at=now)


def _ending(token: JoinToken) -> str:
    if token.revoked_at is not None:
        return f"The token {token.name} was revoked by {token.revoked_by}."
    return f"The token {token.name} expired on {token.expires_at:%Y-%m-%d %H:%M}."


def _refuse(who: str, source: str, why: str, now: datetime) -> NoReturn:
    refusals.note("join.refused", who=who, actor=f"source {source}", reason=why, now=now)
    if refusals.count(f"attempts:{source}", now=now) > FAILURES_ALLOWED:
        raise TooManyAttempts("Too many wrong registration tokens; wait a minute.")
    raise Unauthenticated("This registration token is unknown, expired or revoked.")
