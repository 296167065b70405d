"""From what is wanted to where it is fetched from."""

from collections.abc import Sequence
from dataclasses import dataclass

from worker.backends import gallery, sources, store
from worker.backends.gallery import Entry
from worker.backends.sources import Address
from worker.backends.store import Metadata
from worker.machine import Refused, Wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to fetch, from where, and as what."""

    metadata: Metadata
    addresses: Sequence[Address]
    sha256: str = ""
    meta: Metadata | None = None  # the pointer to write once the concrete backend is there


def by_uri(wanted: Wanted) -> Plan:
    name = store.valid(wanted.name or wanted.backend)
    alias = wanted.alias or (wanted.backend if wanted.backend != name else "")
    return Plan(
        metadata=Metadata(name=name, alias=alias, uri=wanted.uri),
        addresses=[sources.locate(wanted.uri)],
    )


def by_entry(entry: Entry, entries: Sequence[Entry], *, capability: str) -> Plan:
    if not entry.is_meta:
        return _concrete(entry)
    name = gallery.concrete(entry, capability=capability)
    target = gallery.named(entries, f"{entry.gallery.name}@{name}")
    if target is None or target.is_meta:
        raise Refused(f"{entry.name} points to {name}, which is not in its gallery")
    return _concrete(target, pointed_to_by=entry)


def _concrete(entry: Entry, *, pointed_to_by: Entry | None = None) -> Plan:
    if not entry.uri:
        raise Refused(f"{entry.name} has no uri in gallery {entry.gallery.name}")
    return Plan(
        metadata=Metadata(
            name=store.valid(entry.name),
            alias=entry.alias,
            version=entry.version,
            uri=entry.uri,
            gallery_url=entry.gallery.url,
        ),
        addresses=[sources.locate(uri, base=entry.index) for uri in (entry.uri, *entry.mirrors)],
        sha256=entry.sha256,
        meta=_pointer(pointed_to_by, to=entry) if pointed_to_by else None,
    )


def _pointer(meta: Entry, *, to: Entry) -> Metadata:
    return Metadata(
        name=store.valid(meta.name),
        alias=meta.alias,
        version=meta.version or to.version,
        gallery_url=meta.gallery.url,
        meta_backend_for=to.name,
    )
