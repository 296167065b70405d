"""The Backends protocol over a real disk."""

import asyncio
import errno
import stat
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic, sleep
from weakref import WeakValueDictionary

from yarl import URL

from worker.backends import gallery, plan, sources, store, unpack
from worker.backends.blocking import Check, interruptible
from worker.backends.download import Downloads
from worker.backends.gallery import Entry
from worker.backends.limits import Limits, Room, free_bytes, full
from worker.backends.pacing import Bucket
from worker.backends.plan import Plan
from worker.backends.sources import Address
from worker.backends.store import METADATA, RUN, Found, Metadata, Store
from worker.backends.tree import Tree, digest, file_digest, walk
from worker.machine import Gallery, Installed, Refused, Step, Tell, Wanted


class DiskBackends:
    """Backends in `root`, on top of read-only ones in `system_root`.

    Made before the loop has anything else to do: it sweeps what a crash left behind. Unfinished
    downloads are kept in `cache` and continued. `free` tells how many bytes a directory has left.
    """

    def __init__(
        self,
        root: Path,
        *,
        system_root: Path | None = None,
        galleries: Sequence[Gallery] = (),
        capability: str = "",
        cache: Path | None = None,
        download_rate: int = 0,
        retry_pause: timedelta = timedelta(milliseconds=200),
        limits: Limits = Limits(),  # noqa: B008  frozen
        free: Callable[[Path], int] = free_bytes,
    ) -> None:
        """`download_rate`: bytes per second of all transfers, local archives too; 0 is no limit.

        A cut download is tried again after `retry_pause`, then after twice that, and so on.
        """
        self._store = Store(root)
        self._system_root = system_root
        self._galleries = galleries
        self._capability = capability
        self._limits = limits
        self._room = Room(reserve=limits.reserve, free=free)
        self._bucket = Bucket(download_rate)
        self._downloads = Downloads(
            cache or root / ".downloads",
            bucket=self._bucket,
            limits=limits,
            room=self._room,
            pause=retry_pause,
        )
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def close(self) -> None:
        """Let another worker have the folder."""
        self._store.close()

    def find(self, name: str) -> Installed | None:
        """The backend of this folder, metadata name or alias, in this order of preference."""
        found = self._find(name)
        return found.installed if found else None

    def listed(self) -> list[Installed]:
        return [found.installed for found in self._scan()]

    async def fetch(self, wanted: Wanted, *, tell: Tell) -> Installed:
        """Download, check, unpack and swap in; Refused leaves what was there untouched."""
        tell(Step(phase="resolving"))
        try:
            order = await self._plan(wanted)
            await self._install(order, tell)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise full(self._store.root) from error
            raise Refused(f"cannot install {wanted.backend}: {error}") from error
        name = (order.meta or order.metadata).name
        installed = self.find(name)
        if installed is None:
            raise Refused(f"{name} was installed and vanished")
        return installed

    async def delete(self, name: str) -> None:
        """Remove the files; Refused for an unknown or a system backend."""
        found = self._find(name)
        if found is None:
            raise Refused(f"backend {name} is not installed")
        if found.installed.is_system:
            raise Refused(f"{name} is a system backend, it cannot be deleted")
        target = found.metadata.meta_backend_for or found.installed.name
        async with self._lock(target):
            pointers = [
                other.installed.name
                for other in self._scan()
                if other.metadata.meta_backend_for == target and not other.installed.is_system
            ]
            for folder in (*pointers, target):  # no pointer ever points to nothing
                await asyncio.to_thread(self._store.remove, folder)

    def _scan(self) -> list[Found]:
        own = store.scan(self._store.root, is_system=False)
        names = {found.installed.name for found in own}
        system = store.scan(self._system_root, is_system=True) if self._system_root else []
        return own + [found for found in system if found.installed.name not in names]

    def _find(self, name: str) -> Found | None:
        name = name.rpartition("@")[2]
        found = self._scan() if name else []
        by_folder = [one for one in found if one.installed.name == name]
        by_metadata = [one for one in found if one.metadata.name == name]
        by_alias = [one for one in found if one.metadata.alias == name]
        return next(iter(by_folder + by_metadata + by_alias), None)

    def _lock(self, name: str) -> asyncio.Lock:
        return self._locks.setdefault(name, asyncio.Lock())

    async def _plan(self, wanted: Wanted) -> Plan:
        if wanted.uri:
            return plan.by_uri(wanted)
        entries, complaints = await self._entries(wanted.galleries or self._galleries)
        installed = self.find(wanted.backend)
        entry = (
            gallery.named(entries, wanted.backend)
            or (gallery.named(entries, installed.name) if installed else None)
            or gallery.aliased(entries, wanted.backend)
        )
        if entry is None and installed and installed.uri and not installed.gallery_url:
            return plan.by_uri(replace(wanted, name=installed.name, uri=installed.uri))
        if entry is None:
            why = "".join(f"; {complaint}" for complaint in complaints)
            raise Refused(f"no gallery has a backend {wanted.backend!r}{why}")
        return plan.by_entry(entry, entries, capability=self._capability)

    async def _entries(self, galleries: Sequence[Gallery]) -> tuple[list[Entry], list[str]]:
        """All entries that could be read; one broken gallery must not hide the others."""
        entries: list[Entry] = []
        complaints = []
        for one in galleries:
            try:
                index = sources.locate(one.url)
                text = await self._read(index)
                parsed = await asyncio.to_thread(gallery.parse, text, gallery=one, index=index)
                entries += parsed
            except Refused as refusal:
                complaints.append(str(refusal))
        return entries, complaints

    async def _read(self, index: Address) -> bytes:
        if isinstance(index, URL):
            return await self._downloads.read(index)
        try:
            return await asyncio.to_thread(index.read_bytes)
        except OSError as error:
            raise Refused(f"cannot read gallery {index}: {error.strerror}") from error

    async def _install(self, order: Plan, tell: Tell) -> None:
        async with self._lock(order.metadata.name):
            local = next((a for a in order.addresses if isinstance(a, Path) and a.exists()), None)
            urls = [address for address in order.addresses if isinstance(address, URL)]
            if local is not None:
                await self._unpack(order, local, tell)
            elif urls:
                async with self._downloads.fetched(urls, sha256=order.sha256, tell=tell) as fetched:
                    await self._unpack(order, fetched.path, tell, known=fetched.sha256)
            else:
                raise Refused(f"{order.addresses[0]} does not exist")

    async def _unpack(self, order: Plan, source: Path, tell: Tell, *, known: str = "") -> None:
        # In one thread from the first file to the swap: a cancelled install stops in between
        # two files and cleans up, or comes too late and is whole.
        await interruptible(lambda check: self._unpack_now(order, source, tell, known, check))

    def _unpack_now(self, order: Plan, source: Path, tell: Tell, known: str, check: Check) -> None:
        staged = self._store.stage(order.metadata.name)
        try:
            tree = Tree(staged, limits=self._limits, room=self._room, check=check)
            if source.is_dir():
                self._copy(source, tree, tell)
                found = digest(staged, check=check, without=frozenset({METADATA}))
            else:
                found = known or file_digest(source, check=check)
                _verify(found, order)
                self._extract(source, tree, tell, paced=not known)
            _verify(found, order)
            _finish(_top(staged), order, found)
            check()
            self._store.commit(_top(staged), order.metadata.name)
            if order.meta:
                self._store_pointer(replace(order.meta, installed_at=_now()))
        finally:
            store.discard(staged)

    def _copy(self, source: Path, tree: Tree, tell: Tell) -> None:
        if self._store.root.resolve().is_relative_to(source.resolve()):
            raise Refused(f"{source} contains the backends folder itself")
        total = sum(
            entry.stat(follow_symlinks=False).st_size
            for _, entry in walk(source)
            if entry.is_file(follow_symlinks=False)
        )
        self._room.check(self._store.root, needed=total)
        tell(Step(phase="extracting", file_name=source.name, total=total))
        unpack.folder(source, tree)
        tell(Step(phase="extracting", file_name=source.name, current=total, total=total))

    def _extract(self, source: Path, tree: Tree, tell: Tell, *, paced: bool) -> None:
        total = source.stat().st_size
        self._room.check(self._store.root, needed=total)  # it unpacks to at least about this
        before = 0

        def told(current: int) -> None:
            nonlocal before
            tell(Step(phase="extracting", file_name=source.name, current=current, total=total))
            if paced:  # not downloaded, so from a disk that may well be a network
                wait = self._bucket.take(current - before, now=timedelta(seconds=monotonic()))
                sleep(wait.total_seconds())
            before = current

        unpack.archive(source, tree, limits=self._limits, told=told)
        tell(Step(phase="extracting", file_name=source.name, current=total, total=total))

    def _store_pointer(self, meta: Metadata) -> None:
        staged = self._store.stage(meta.name)
        store.write(staged, meta)
        self._store.commit(staged, meta.name)


def _verify(found: str, order: Plan) -> None:
    if order.sha256 and found != order.sha256:
        raise Refused(
            f"wrong checksum of {order.metadata.name}: expected sha256:{order.sha256}, "
            f"got sha256:{found}"
        )


def _top(staged: Path) -> Path:
    """Where run.sh is: here, or in the one folder that many archives are wrapped in."""
    if (staged / RUN).exists():
        return staged
    inside = list(staged.iterdir())
    if len(inside) == 1 and inside[0].is_dir() and not inside[0].is_symlink():
        return inside[0]
    return staged


def _finish(top: Path, order: Plan, found: str) -> None:
    run = top / RUN
    if not run.is_file() or not run.resolve().is_relative_to(top.resolve()):
        raise Refused(f"{order.metadata.name} has no {RUN}: not a backend")
    run.chmod(run.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    (top / METADATA).unlink(missing_ok=True)  # may be a link
    store.write(top, replace(order.metadata, digest=f"sha256:{found}", installed_at=_now()))


def _now() -> str:
    return datetime.now(UTC).isoformat()
