"""What can be installed: galleries are read now and then, and looked up here ever after."""

import ssl
import time
import urllib.request
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO
from urllib.parse import unquote, urlsplit

from django.conf import settings
from django.db import transaction

from backendops import galleries
from backendops.galleries import LARGEST_INDEX, Entry, UnreadableGallery
from backendops.models import GalleryBackend, GalleryCheck
from backendops.orders import GalleryRef, Order
from backendops.states import Verb
from clustermgr.conf import GallerySource
from clustermgr.lib.errors import InvalidInput
from clustermgr.lib.text import readable

CHUNK = 64 * 1024
TRY_AGAIN = timedelta(minutes=1)
FETCHES = (Verb.INSTALL, Verb.REINSTALL, Verb.UPGRADE)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """What became of one gallery."""

    source: GallerySource
    entries: Sequence[Entry] | None  # None: it could not be read, so what we know stays
    error: str


def sources() -> tuple[GallerySource, ...]:
    """The configured galleries; the first that has a name is the one it is taken from."""
    configured: tuple[GallerySource, ...] = settings.CLUSTER.backend_galleries
    return configured


def check(*, now: datetime) -> int:
    """Read every gallery and write down what it has; the number that could be read."""
    return _check(sources(), now=now)


def check_due(*, now: datetime) -> int:
    """Read those that were not read for long, and, sooner, those that could not be."""
    tries = GalleryCheck.objects.in_bulk()
    return _check([one for one in sources() if _due(tries.get(one.name), now=now)], now=now)


def _due(last: GalleryCheck | None, *, now: datetime) -> bool:
    if last is None:
        return True
    if last.checked_at != last.tried_at:
        return now - last.tried_at >= TRY_AGAIN
    return bool(now - last.tried_at >= settings.CLUSTER.check_upgrades_every)


def _check(wanted: Sequence[GallerySource], *, now: datetime) -> int:
    found = [_read(source) for source in wanted]
    _store(found, now=now)
    return sum(one.entries is not None for one in found)


def resolve(order: Order) -> Order:
    """The order with the gallery it comes from.

    `<gallery>@<name>` must name one of ours. A plain name that one of them has is taken from
    there, so that what the catalog shows is what gets installed; any other is left to the
    workers' own galleries. So is one of a gallery in our own files: other machines have none.
    """
    gallery, at, name = order.backend.partition("@")
    if at:
        return _named(order, gallery, name)
    if order.verb not in FETCHES or order.galleries or order.uri:
        return order
    places = dict(
        GalleryBackend.objects.filter(name=order.backend).values_list("gallery", "gallery_url")
    )
    having = [
        source
        for source in sources()
        if source.name in places and source.url.startswith(("http://", "https://"))
    ]
    return replace(order, galleries=(_ref(having[0]),)) if having else order


def _named(order: Order, gallery: str, name: str) -> Order:
    source = next((source for source in sources() if source.name == gallery), None)
    if source is None:
        known = ", ".join(source.name for source in sources()) or "none"
        raise InvalidInput(f"There is no gallery {gallery}; configured: {known}.")
    if not name:
        raise InvalidInput("backend is <gallery>@<name>, or a name.")
    refs = (_ref(source),) if order.verb in FETCHES else ()
    return replace(order, backend=name, galleries=refs)


def _ref(source: GallerySource) -> GalleryRef:
    return GalleryRef(name=source.name, url=source.url)


def _read(source: GallerySource) -> _Read:
    try:
        index = galleries.parse(_fetch(source.url, within=settings.CLUSTER.gallery_timeout))
    except (UnreadableGallery, OSError, HTTPException, ValueError) as error:
        words = readable(f"{error}" or type(error).__name__, limit=1000)
        return _Read(source=source, entries=None, error=words)
    return _Read(source=source, entries=index.entries, error="\n".join(index.problems))


@transaction.atomic
def _store(found: Sequence[_Read], *, now: datetime) -> None:
    names = [source.name for source in sources()]
    GalleryCheck.objects.exclude(gallery__in=names).delete()
    GalleryBackend.objects.exclude(gallery__in=names).delete()
    for one in found:
        moments = {"tried_at": now} if one.entries is None else {"tried_at": now, "checked_at": now}
        GalleryCheck.objects.update_or_create(
            gallery=one.source.name, defaults={**moments, "error": one.error}
        )
        if one.entries is not None:
            _replace(one.source, one.entries, now=now)


def _replace(source: GallerySource, entries: Iterable[Entry], *, now: datetime) -> None:
    rows = [_row(source, entry, now) for entry in entries]
    columns = [
        field.name
        for field in GalleryBackend._meta.concrete_fields
        if field.name not in ("id", "gallery", "name")
    ]
    GalleryBackend.objects.bulk_create(
        rows, update_conflicts=True, unique_fields=["gallery", "name"], update_fields=columns
    )
    gone = GalleryBackend.objects.filter(gallery=source.name)
    gone.exclude(name__in=[row.name for row in rows]).delete()


def _row(source: GallerySource, entry: Entry, now: datetime) -> GalleryBackend:
    return GalleryBackend(
        gallery=source.name,
        gallery_url=source.url,
        name=entry.name,
        version=entry.version,
        digest=entry.digest,
        uri=entry.uri,
        alias=entry.alias,
        description=entry.description,
        license=entry.license,
        icon=entry.icon,
        urls=list(entry.urls),
        tags=list(entry.tags),
        capabilities=dict(entry.capabilities),
        checked_at=now,
    )


class _SameKind(urllib.request.HTTPRedirectHandler):
    """Follow redirects, but never to a file and never out of TLS."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        there, here = urlsplit(newurl).scheme.lower(), req.type
        if there not in ("http", "https") or (here == "https" and there != "https"):
            raise UnreadableGallery(
                f"It sends us on from {here} to {there}, which we do not follow."
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _opener() -> urllib.request.OpenerDirector:
    """HTTP and nothing else: the usual one also reads files and FTP."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.UnknownHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(context=ssl.create_default_context()),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        _SameKind(),
    ):
        opener.add_handler(handler)
    return opener


def _fetch(url: str, *, within: timedelta) -> bytes:
    """The bytes behind a gallery's address, neither too many nor for too long."""
    where = urlsplit(url)
    if where.scheme not in ("http", "https"):
        with Path(unquote(where.path)).open("rb") as file:
            return file.read(LARGEST_INDEX + 1)
    opener = _opener()
    until = time.monotonic() + within.total_seconds()
    with opener.open(url, timeout=within.total_seconds()) as reply:
        body = bytearray()
        while chunk := reply.read(CHUNK):
            body += chunk
            if len(body) > LARGEST_INDEX:
                break  # the parser refuses it by its size
            if time.monotonic() > until:
                raise TimeoutError(f"It took longer than {within.total_seconds():.0f} s.")
    return bytes(body)
