"""Fetches a file over HTTP, goes on where it was cut, and proves what it got."""

import asyncio
import errno
import hashlib
import re
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import IO
from weakref import WeakValueDictionary

import aiohttp
from yarl import URL

from worker.backends.blocking import interruptible
from worker.backends.limits import Limits, Room, full
from worker.backends.pacing import Bucket
from worker.backends.partial import Note, Partial
from worker.backends.tree import file_digest
from worker.machine import Refused, Step, Tell

CHUNK = 2**20
ATTEMPTS = 5  # in a row that brought nothing, per address
ATTEMPTS_IN_ALL = 100
KEPT = timedelta(days=7)  # an unfinished download that nobody came back for
PATIENCE = aiohttp.ClientTimeout(total=None, sock_connect=15, sock_read=60)
NOT_AGAIN = (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError, aiohttp.TooManyRedirects)
CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-\d+|\*)/(\d+)")


class Cut(Exception):
    """The connection brought less than promised; worth another try."""


class Changed(Cut):
    """The server has another file by now; what we have of the old one is worthless."""


class Useless(Exception):
    """This address will not give the file, however often we ask."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    path: Path
    sha256: str


class Downloads:
    """Downloads of one worker: they share a rate, and unfinished ones survive in `directory`."""

    def __init__(
        self,
        directory: Path,
        *,
        bucket: Bucket,
        limits: Limits,
        room: Room,
        pause: timedelta,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        for file in directory.iterdir():
            if file.stat().st_mtime < time.time() - KEPT.total_seconds():
                file.unlink()
        self._directory = directory
        self._bucket = bucket
        self._limits = limits
        self._room = room
        self._pause = pause
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def fetched(
        self, urls: Sequence[URL], *, sha256: str, tell: Tell
    ) -> AsyncIterator[Fetched]:
        """The file of the first address that works; it is dropped when the block went well.

        A block that failed or was cancelled keeps it: the next try need not fetch it again.
        """
        key = sha256 or hashlib.sha256(str(urls[0]).encode()).hexdigest()
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:
            part = Partial(self._directory, key)
            yield await self._from_any(urls, part, sha256=sha256, tell=tell)
            part.remove()

    async def read(self, url: URL) -> bytes:
        """A small file, whole."""
        try:
            async with self._session() as session, session.get(url, max_redirects=5) as response:
                if response.status != 200:
                    raise Refused(f"{url} answered {response.status}")
                text = bytearray()
                async for chunk in response.content.iter_chunked(CHUNK):
                    text += chunk
                    if len(text) > self._limits.index:
                        raise Refused(f"{url} is larger than {self._limits.index} bytes")
                return bytes(text)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise Refused(f"cannot read {url}: {_words(error)}") from error

    async def _from_any(
        self, urls: Sequence[URL], part: Partial, *, sha256: str, tell: Tell
    ) -> Fetched:
        reasons = []
        async with self._session() as session:
            for url in urls:
                try:
                    return await self._from(session, url, part, sha256=sha256, tell=tell)
                except Useless as error:
                    reasons.append(f"{url}: {error}")
        raise Refused("download failed: " + "; ".join(reasons))

    async def _from(
        self, session: aiohttp.ClientSession, url: URL, part: Partial, *, sha256: str, tell: Tell
    ) -> Fetched:
        resumed = part.size() > 0
        await self._complete(session, url, part, proven=bool(sha256), tell=tell)
        found = await interruptible(lambda check: file_digest(part.path, check=check))
        if not sha256 or found == sha256:
            return Fetched(path=part.path, sha256=found)
        part.remove()
        if resumed:  # the first half may have been the wrong one
            return await self._from(session, url, part, sha256=sha256, tell=tell)
        raise Useless(f"wrong checksum: expected sha256:{sha256}, got sha256:{found}")

    async def _complete(
        self, session: aiohttp.ClientSession, url: URL, part: Partial, *, proven: bool, tell: Tell
    ) -> None:
        fruitless = 0
        for _ in range(ATTEMPTS_IN_ALL):
            before = part.size()
            try:
                return await self._attempt(session, url, part, proven=proven, tell=tell)
            except (Cut, aiohttp.ClientError, TimeoutError) as error:
                _give_up(error)
                if isinstance(error, Changed):
                    part.remove()
                fruitless = 0 if part.size() > before else fruitless + 1
                if fruitless >= ATTEMPTS:
                    raise Useless(_words(error)) from error
                await asyncio.sleep((self._pause * 2**fruitless).total_seconds())
        raise Useless(f"cut {ATTEMPTS_IN_ALL} times")

    async def _attempt(
        self, session: aiohttp.ClientSession, url: URL, part: Partial, *, proven: bool, tell: Tell
    ) -> None:
        have, note = _usable(part, url, proven=proven)
        if proven and note and have and have == note.total:
            return
        headers = {"Range": f"bytes={have}-"} if have else {}
        if have and note and note.url == str(url) and note.etag:
            headers["If-Range"] = note.etag
        async with session.get(url, headers=headers, max_redirects=5) as response:
            start, total = _extent(response, have)
            if response.status == 416:
                return
            self._admit(total, start)
            note = Note(url=str(url), etag=_strong(response), total=total)
            try:
                with part.begin(note, keep=start) as file:
                    await self._receive(response, file, total=total, name=url.name, tell=tell)
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                    raise full(self._directory) from error
                raise
        if total and part.size() != total:
            raise Cut(f"ended after {part.size()} of {total} bytes")

    async def _receive(
        self,
        response: aiohttp.ClientResponse,
        file: IO[bytes],
        *,
        total: int,
        name: str,
        tell: Tell,
    ) -> None:
        size, looked = file.tell(), 0
        tell(Step(phase="downloading", file_name=name, current=size, total=total))
        async for chunk in response.content.iter_chunked(CHUNK):
            size += len(chunk)
            self._admit(size, size)
            if not total and size - looked > 32 * CHUNK:
                looked = size
                self._room.check(self._directory, needed=0)
            await asyncio.to_thread(_append, file, chunk)
            tell(Step(phase="downloading", file_name=name, current=size, total=total))
            wait = self._bucket.take(len(chunk), now=timedelta(seconds=time.monotonic()))
            if wait:
                await asyncio.sleep(wait.total_seconds())

    def _admit(self, total: int, have: int) -> None:
        if total > self._limits.download:
            raise Refused(f"larger than {self._limits.download} bytes")
        if total > have:
            self._room.check(self._directory, needed=total - have)

    def _session(self) -> aiohttp.ClientSession:
        # Redirects are followed to http(s) only: aiohttp knows nothing else.
        return aiohttp.ClientSession(
            timeout=PATIENCE,
            headers={"Accept-Encoding": "identity"},
            auto_decompress=False,
            trust_env=True,
            read_bufsize=CHUNK,
        )


def _usable(part: Partial, url: URL, *, proven: bool) -> tuple[int, Note | None]:
    """How many bytes may stay: those whose origin is known, if somebody can prove it later."""
    note = part.note()
    if note is None or not (proven or (note.etag and note.url == str(url))):
        return 0, None
    return part.size(), note


def _extent(response: aiohttp.ClientResponse, have: int) -> tuple[int, int]:
    """Where the body starts and how long the file is; 0 for unknown."""
    match = CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
    if response.status == 200:
        return 0, response.content_length or 0
    if response.status == 206 and match and match[1] and int(match[1]) == have:
        return have, int(match[2])
    if response.status == 416 and have and match and int(match[2]) == have:
        return have, have  # we had it all
    if response.status in (206, 416):
        raise Changed("answered another range than was asked for")
    if response.status >= 500 or response.status in (408, 429):
        raise Cut(f"answered {response.status}")
    raise Useless(f"answered {response.status}")


def _strong(response: aiohttp.ClientResponse) -> str:
    etag = response.headers.get("ETag", "")
    return "" if etag.startswith("W/") else etag


def _give_up(error: Exception) -> None:
    if isinstance(error, NOT_AGAIN):
        raise Useless(_words(error)) from error


def _append(file: IO[bytes], chunk: bytes) -> None:
    file.write(chunk)
    file.flush()  # what was received must survive us


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
