"""API tokens: issued once, stored as a digest, revoked at once."""

import hashlib
import secrets
from datetime import datetime, timedelta

from django.contrib.auth.models import User

from clustermgr.lib.errors import Unauthenticated
from clustermgr.models import ApiToken

PREFIX = "cm_"
# "Last used" answers "may I revoke this?"; to the minute is enough and spares a write a request.
USED_EVERY = timedelta(minutes=1)


def digest(secret: str) -> str:
    """High-entropy secrets need no salt and no slow hash."""
    return hashlib.sha256(secret.encode()).hexdigest()


def issue(
    user: User,
    *,
    name: str,
    now: datetime,
    expires_at: datetime | None = None,
    secret: str | None = None,
) -> tuple[ApiToken, str]:
    """Make a token for `user`; the secret is returned here and never again."""
    plain = secret or PREFIX + secrets.token_urlsafe(32)
    token = ApiToken.objects.create(
        name=name,
        user=user,
        digest=digest(plain),
        prefix=plain[:12],
        created_at=now,
        expires_at=expires_at,
    )
    return token, plain


def may_issue(by: User, user: User) -> bool:
    """Whether `by` may make a token of `user`: not one that opens more than their own would."""
    if by == user or by.is_superuser:
        return True
    return not user.is_superuser and user.get_all_permissions() <= by.get_all_permissions()


def authenticate(secret: str, *, now: datetime) -> ApiToken:
    """The live token behind `secret`, else a refusal that does not say why."""
    token = ApiToken.objects.select_related("user").filter(digest=digest(secret)).first()
    if token is None or not _usable(token, now):
        raise Unauthenticated("This API token is unknown, expired or revoked.")
    if token.last_used_at is None or now - token.last_used_at > USED_EVERY:
        ApiToken.objects.filter(pk=token.pk).update(last_used_at=now)
    return token


def revoke(token: ApiToken, *, now: datetime) -> None:
    """Stop `token` from working; it stays listed so that history can be read."""
    ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=now)


def _usable(token: ApiToken, now: datetime) -> bool:
    if token.revoked_at is not None or not token.user.is_active:
        return False
    return token.expires_at is None or token.expires_at > now
