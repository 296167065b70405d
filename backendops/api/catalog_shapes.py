"""The catalog in LocalAI's words."""

from collections.abc import Iterable, Sequence

from backendops.api.shapes import TASK, Json
from backendops.models import GalleryBackend, GalleryCheck, NodeBackend
from backendops.services import catalog
from backendops.services.browsing import Listing, Look
from backendops.states import Verb
from backendops.upgrading import DEVELOPMENT, Upgrade

OPTIONAL = ("installed_at", "gallery_url", "version", "uri", "digest")
ENTRY = (
    *("name", "description", "license", "urls", "icon", "tags", "version"),
    *("alias", "uri", "capabilities"),
)


def catalog_json(look: Look, listing: Listing) -> Json:
    pages = max(1, -(-listing.found // look.items))
    busy = listing.busy
    return {
        "backends": [_entry(entry, listing) for entry in listing.entries],
        "repositories": galleries_json(),
        "allTags": listing.tags,
        "processingBackends": {name: str(operation.pk) for name, operation in busy.items()},
        "taskTypes": {
            name: TASK.get(Verb(operation.verb), "installation") for name, operation in busy.items()
        },
        "availableBackends": listing.available,
        "installedBackends": listing.installed_names,
        "currentPage": look.page,
        "totalPages": pages,
        "prevPage": max(1, look.page - 1),
        "nextPage": min(pages, look.page + 1),
        "systemCapability": "",  # this machine runs no backends
        "preferDevelopmentBackends": False,
    }


def galleries_json() -> list[Json]:
    """The configured galleries with what became of the last try to read them."""
    checks = GalleryCheck.objects.in_bulk()
    return [
        {
            "name": source.name,
            "url": source.url,
            "checked_at": checks[source.name].checked_at if source.name in checks else None,
            "error": checks[source.name].error if source.name in checks else "",
        }
        for source in catalog.sources()
    ]


def installed_json(row: NodeBackend) -> Json:
    """As the worker told it: what it left out is left out."""
    flags = {"is_system": row.is_system, "is_meta": row.is_meta}
    return {"name": row.name, **flags, **_told(row, OPTIONAL)}


def system_json(rows: Sequence[NodeBackend], newer: Upgrade | None) -> Json:
    """One installed backend in LocalAI's words, half of which are Go's; no file is ours to run."""
    first = rows[0]
    told: Json = {
        "Name": first.name,
        "RunFile": "",
        "IsMeta": first.is_meta,
        "IsSystem": first.is_system,
        "Metadata": {"name": first.name, **_told(first, OPTIONAL)},
        "nodes": [_reference(row) for row in rows],
    }
    if newer:
        told |= {"upgrade_available": True, "available_version": newer.offer.version}
    return told


def available_json(entry: GalleryBackend, *, installed: bool) -> Json:
    """A gallery's entry as LocalAI tells it: what is empty is left out."""
    told = _told(entry, ENTRY)
    gallery = {"url": entry.gallery_url, "name": entry.gallery}
    return {**told, "gallery": gallery, **({"installed": True} if installed else {})}


def known_json(name: str, *, description: str, there: bool) -> Json:
    told = {"description": description} if description else {}
    return {"name": name, "modality": "", "auto_detect": False, **told, "installed": there}


def _reference(row: NodeBackend) -> Json:
    node = {
        "node_id": str(row.node_id),
        "node_name": row.node.name,
        "node_status": row.node.status,
    }
    return {**node, **_told(row, ("version", "digest", "uri", "installed_at"))}


def _told(row: NodeBackend | GalleryBackend, keys: Iterable[str]) -> Json:
    return {key: value for key in keys if (value := getattr(row, key))}


def _entry(entry: GalleryBackend, listing: Listing) -> Json:
    places, operation = listing.installed.get(entry.name, ()), listing.busy.get(entry.name)
    return {
        "id": f"{entry.gallery}@{entry.name}",
        "name": entry.name,
        "description": entry.description,
        "icon": entry.icon,
        "license": entry.license,
        "urls": entry.urls,
        "tags": entry.tags,
        "gallery": entry.gallery,
        "installed": bool(places),
        "version": entry.version,
        "processing": operation is not None,
        "jobID": str(operation.pk) if operation else "",
        "isDeletion": operation is not None and operation.verb == Verb.DELETE,
        "isMeta": bool(entry.capabilities),
        "isAlias": False,
        "isDevelopment": entry.name.endswith(DEVELOPMENT),
        "capabilities": entry.capabilities,
        "metaBackendFor": "",
        "nodes": [_place(row) for row in places],
    }


def _place(row: NodeBackend) -> Json:
    return {
        "node_id": str(row.node_id),
        "node_name": row.node.name,
        "node_status": row.node.status,
        "version": row.version,
        "digest": row.digest,
        "observed_at": row.observed_at,
    }
