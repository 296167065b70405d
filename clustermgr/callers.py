"""Who opens a WebSocket: the same two keys as everywhere, told from the bare handshake."""

from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.auth.models import AnonymousUser, User
from django.http import HttpRequest
from django.http.request import split_domain_port, validate_host
from django.utils import timezone

from clustermgr import tokens
from clustermgr.lib.errors import Forbidden, Unauthenticated

SCHEME = "bearer "


def caller(scope: Mapping[str, Any]) -> User:
    """The user behind a handshake: an API token, or a session of a page of our own.

    Browsers send cookies along wherever a page comes from and ask nobody before they open a
    WebSocket, so a session counts only with an Origin that is ours.
    """
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    _check_origin(headers)
    authorization = headers.get("authorization", "")
    if authorization.lower().startswith(SCHEME):
        secret = authorization[len(SCHEME) :].strip()
        return tokens.authenticate(secret, now=timezone.now()).user
    if "origin" not in headers:
        raise Unauthenticated("Send an API token: Authorization: Bearer <token>.")
    user = _session_user(headers.get("cookie", ""))
    if user is None:
        raise Unauthenticated("Log in, or send an API token.")
    return user


def _check_origin(headers: Mapping[str, str]) -> None:
    host, origin = headers.get("host", ""), headers.get("origin")
    if not validate_host(split_domain_port(host)[0], settings.ALLOWED_HOSTS):
        raise Forbidden("This is not a name we are reached by.")
    if origin is None or origin in settings.CSRF_TRUSTED_ORIGINS:
        return
    # By name and port alone: behind a proxy we do not see whether the page came by https
    if urlsplit(origin).netloc != host:
        raise Forbidden("A page from elsewhere may not look in here.")


def _session_user(cookies: str) -> User | None:
    jar: SimpleCookie = SimpleCookie()
    try:
        jar.load(cookies)
    except CookieError:
        return None
    morsel = jar.get(settings.SESSION_COOKIE_NAME)
    request = HttpRequest()
    store = import_module(settings.SESSION_ENGINE).SessionStore
    request.session = store(morsel.value if morsel else None)
    user = get_user(request)
    return None if isinstance(user, AnonymousUser) or not user.is_active else user
