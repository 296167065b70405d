"""Whether a node has what it was told to have; its word alone is not enough. Pure."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from backendops.states import Verb
from nodes.wire import InstalledBackend


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    done: bool
    words: str  # why not


DONE = Verdict(done=True, words="")


def evidence(backend: InstalledBackend | None) -> dict[str, Any]:
    """What tells one installation of a backend from the next; empty: it is not there."""
    if backend is None:
        return {}
    return {
        "there": True,
        "version": backend.version,
        "digest": backend.digest,
        "installed_at": backend.installed_at,
    }


def find(names: Collection[str], backends: Iterable[InstalledBackend]) -> InstalledBackend | None:
    """The backend under any of the names it may be listed by."""
    found = [backend for backend in backends if backend.name in names]
    return found[0] if found else None


def verdict(
    verb: Verb, backend: str, *, before: Mapping[str, Any], there: InstalledBackend | None
) -> Verdict:
    """Compare what the node lists now with what was wanted, and with what it listed before."""
    match verb:
        case Verb.DELETE:
            return (
                DONE if there is None else Verdict(done=False, words=f"{backend} is still there.")
            )
        case Verb.STOP:
            return DONE
    if there is None:
        return Verdict(done=False, words=f"{backend} is not in the node's inventory.")
    if verb == Verb.INSTALL or not before or not _tells(there):
        return DONE
    if evidence(there) != dict(before):
        return DONE
    known = there.digest or there.version
    return Verdict(
        done=False,
        words=f"{backend} was not replaced: still {known}, installed {there.installed_at or '?'}.",
    )


def _tells(backend: InstalledBackend) -> bool:
    """Whether the node lists anything by which two installations could be told apart."""
    return bool(backend.digest or backend.version or backend.installed_at)
