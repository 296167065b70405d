"""What can be asked of nodes, checked before anything is written."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Any, Self
from urllib.parse import urlsplit
from uuid import UUID

from backendops.states import Verb
from clustermgr.lib.errors import InvalidInput
from clustermgr.lib.text import checked
from nodes.selectors import Selector

NAME = 255
LOCATION = 2048
MOST_GALLERIES = 20
ARCHIVES = (".tar.gz", ".tgz", ".tar.xz", ".tar.bz2", ".tar")


@dataclass(frozen=True, slots=True, kw_only=True)
class GalleryRef:
    name: str
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A verb, a backend and where it comes from; `Order.of` makes only sensible ones."""

    verb: Verb
    backend: str  # the name it is installed under, never empty
    galleries: tuple[GalleryRef, ...] = ()  # none: each worker's own
    uri: str = ""
    name: str = ""
    alias: str = ""

    @classmethod
    def of(
        cls,
        verb: Verb,
        *,
        backend: str = "",
        galleries: Sequence[Mapping[str, Any]] = (),
        uri: str = "",
        name: str = "",
        alias: str = "",
    ) -> Self:
        """Check what came from outside; refuse with a sentence that names the field."""
        backend, name, alias = backend.strip(), name.strip(), alias.strip()
        uri = checked(uri.strip(), field="uri", limit=LOCATION)
        if (uri or name or alias) and verb not in (Verb.INSTALL, Verb.REINSTALL, Verb.UPGRADE):
            raise InvalidInput(f"A {verb} takes a backend's name and nothing else.")
        if (name or alias) and not uri:
            raise InvalidInput("name and alias belong to a uri; a gallery's entry has its own.")
        # Always named: a worker that is sent only a uri downloads and then finds nothing
        backend = backend or name or _name_in(uri)
        if not backend:
            raise InvalidInput("backend is required, or a uri to install from.")
        return cls(
            verb=verb,
            backend=checked(backend, field="backend", limit=NAME),
            galleries=_galleries(galleries),
            uri=uri,
            name=checked(name, field="name", limit=NAME),
            alias=checked(alias, field="alias", limit=NAME),
        )

    def columns(self) -> dict[str, Any]:
        """As an operation and an op store it."""
        return {
            "verb": self.verb,
            "backend": self.backend,
            "galleries": [asdict(gallery) for gallery in self.galleries],
            "uri": self.uri,
            "name": self.name,
            "alias": self.alias,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Which nodes: the named ones, those a selector matches, or everyone it makes sense for."""

    nodes: tuple[UUID, ...] = ()
    selector: Selector | None = None
    everyone: bool = False
    despite_mismatch: bool = False  # also where no build for the hardware is known

    def __post_init__(self) -> None:
        if sum((bool(self.nodes), self.selector is not None, self.everyone)) != 1:
            raise InvalidInput("Name the nodes, or a selector, or all of them: exactly one.")


def digest(order: Order, target: Target) -> str:
    """The same for the same wish: tells a repeated request from a reused key."""
    wish = {
        **order.columns(),
        "nodes": sorted(map(str, target.nodes)),
        "selector": str(target.selector or ""),
        "everyone": target.everyone,
        "despite_mismatch": target.despite_mismatch,
    }
    return hashlib.sha256(json.dumps(wish, sort_keys=True).encode()).hexdigest()


def _galleries(given: Sequence[Mapping[str, Any]]) -> tuple[GalleryRef, ...]:
    if len(given) > MOST_GALLERIES:
        raise InvalidInput(f"At most {MOST_GALLERIES} galleries can be given.")
    return tuple(_gallery(entry) for entry in given)


def _gallery(entry: Mapping[str, Any]) -> GalleryRef:
    name, url = entry.get("name", ""), entry.get("url", "")
    if not isinstance(name, str) or not isinstance(url, str) or not url:
        raise InvalidInput("A gallery is an object with a name and a url.")
    return GalleryRef(
        name=checked(name, field="A gallery's name", limit=NAME),
        url=checked(url, field="A gallery's url", limit=LOCATION),
    )


def _name_in(uri: str) -> str:
    """What an archive or a folder is probably called."""
    last = PurePosixPath(urlsplit(uri).path).name
    for ending in ARCHIVES:
        last = last.removesuffix(ending)
    return last.split(":")[0].split("@")[0]
