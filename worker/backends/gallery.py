"""Galleries: YAML lists of backends, and the finding of one entry in them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from worker.backends.sources import Address
from worker.machine import Gallery, Refused

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One backend of an index. With capabilities it is only a pointer to a concrete one."""

    name: str
    gallery: Gallery
    index: Address  # relative uris are meant from here
    uri: str = ""
    alias: str = ""
    version: str = ""
    sha256: str = ""
    description: str = ""
    license: str = ""
    tags: tuple[str, ...] = ()
    mirrors: tuple[str, ...] = ()
    capabilities: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_meta(self) -> bool:
        return bool(self.capabilities) and not self.uri


def parse(text: bytes, *, gallery: Gallery, index: Address) -> list[Entry]:
    """Read an index; unknown keys and entries without a name are somebody else's business."""
    try:
        loaded = yaml.load(text, Loader=LOADER)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise Refused(f"gallery {gallery.name} is not valid YAML: {_first_line(error)}") from error
    if loaded is None:
        return []
    if not isinstance(loaded, list):
        raise Refused(f"gallery {gallery.name} is not a list of backends")
    return [
        _entry(row, gallery=gallery, index=index)
        for row in loaded
        if isinstance(row, dict) and _text(row.get("name"))
    ]


def named(entries: Iterable[Entry], wanted: str) -> Entry | None:
    """The first entry of this name; `<gallery>@<name>` asks one gallery only."""
    gallery, _, name = wanted.rpartition("@")
    return next((entry for entry in _of(entries, gallery) if entry.name == name), None)


def aliased(entries: Iterable[Entry], wanted: str) -> Entry | None:
    """The one entry of this alias."""
    gallery, _, alias = wanted.rpartition("@")
    found = {entry.name: entry for entry in _of(entries, gallery) if entry.alias == alias}
    if len(found) > 1:
        names = ", ".join(sorted(found))
        raise Refused(f"several backends are called {alias}: {names}; ask for one of them")
    return next(iter(found.values()), None)


def concrete(entry: Entry, *, capability: str) -> str:
    """The name behind a meta entry: nvidia-cuda-12, else nvidia-cuda, nvidia, default."""
    words = capability.split("-")
    shorter = ["-".join(words[:count]) for count in range(len(words), 0, -1)]
    for candidate in (*shorter, "default"):
        if found := entry.capabilities.get(candidate):
            return found
    raise Refused(
        f"{entry.name} has nothing for a machine with capability {capability or 'default'}; "
        f"it knows {', '.join(sorted(entry.capabilities))}"
    )


def _of(entries: Iterable[Entry], gallery: str) -> list[Entry]:
    return [entry for entry in entries if not gallery or entry.gallery.name == gallery]


def _entry(row: Mapping[str, Any], *, gallery: Gallery, index: Address) -> Entry:
    capabilities = row.get("capabilities")
    pairs = capabilities.items() if isinstance(capabilities, dict) else ()
    return Entry(
        name=_text(row.get("name")),
        uri=_text(row.get("uri")),
        alias=_text(row.get("alias")),
        version=_text(row.get("version")),
        sha256=_text(row.get("sha256")).removeprefix("sha256:").lower(),
        description=_text(row.get("description")),
        license=_text(row.get("license")),
        tags=_texts(row.get("tags")),
        mirrors=_texts(row.get("mirrors")),
        capabilities={_text(key): _text(value) for key, value in pairs if _text(value)},
        index=index,
        gallery=gallery,
    )


def _text(value: object) -> str:
    # 1.10 without quotes is a number to YAML; anything nested is not a text at all.
    return str(value).strip() if isinstance(value, str | int | float) else ""


def _texts(value: object) -> tuple[str, ...]:
    return tuple(filter(None, map(_text, value))) if isinstance(value, Sequence) else ()


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
