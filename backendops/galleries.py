"""Reads a gallery: a YAML list of backends in LocalAI's shape. Pure.

What a gallery says is somebody else's text: it is bounded, and an entry that makes no sense is
left out and told, so that one typo does not hide the other two hundred.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from clustermgr.lib.errors import InvalidInput
from clustermgr.lib.text import checked, readable

LARGEST_INDEX = 8 * 2**20  # bytes; LocalAI's own has about 200 kB
MOST_ENTRIES = 5000
DEEPEST = 20
MOST_LISTED = 100  # tags, urls, builds
MOST_PROBLEMS = 20  # told; whoever has more will not read them
NAME, LOCATION, PROSE = 255, 2048, 10_000
SHA256 = "sha256"


class UnreadableGallery(InvalidInput):
    """Nothing of it can be used."""

    code = "unreadable_gallery"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One backend that could be installed."""

    name: str
    version: str = ""
    digest: str = ""  # "sha256:<hex>"
    uri: str = ""
    alias: str = ""
    description: str = ""
    license: str = ""
    icon: str = ""
    urls: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    capabilities: Mapping[str, str] = field(default_factory=dict)  # not empty: a meta backend


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    entries: tuple[Entry, ...]
    problems: tuple[str, ...]  # why others were left out, in words


def parse(raw: bytes) -> Index:
    """Read an index; refuse only what holds no list at all."""
    if len(raw) > LARGEST_INDEX:
        raise UnreadableGallery(f"The index is larger than {LARGEST_INDEX // 2**20} MiB.")
    document = _load(raw)
    if not isinstance(document, list):
        raise UnreadableGallery("The index is not a YAML list of backends.")
    entries: dict[str, Entry] = {}
    problems: list[str] = []
    for number, item in enumerate(document[:MOST_ENTRIES], start=1):
        try:
            entry = _entry(item)
            if entry.name in entries:
                raise InvalidInput(f"{entry.name} is there twice; the first one counts.")
            entries[entry.name] = entry
        except InvalidInput as problem:
            problems.append(f"Entry {number}: {problem}")
    if len(document) > MOST_ENTRIES:
        problems.insert(0, f"Only the first {MOST_ENTRIES} of {len(document)} entries were read.")
    return Index(entries=tuple(entries.values()), problems=_first(problems))


def _load(raw: bytes) -> Any:
    try:
        _check_depth(raw)
        return yaml.load(raw, Loader=yaml.CSafeLoader)
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that no calendar has
        where = readable(str(error), limit=300)
        raise UnreadableGallery(f"The index is not YAML: {where}") from error


def _check_depth(raw: bytes) -> None:
    """The fast loader recurses in C: what is nested deeply enough would kill this process."""
    depth = 0
    for event in yaml.parse(raw, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > DEEPEST:
            raise UnreadableGallery("The index is nested too deeply.")


def _entry(item: Any) -> Entry:
    if not isinstance(item, dict):
        raise InvalidInput("it is not an object.")
    name = _text(item, "name")
    if not name:
        raise InvalidInput("it has no name.")
    return Entry(
        name=name,
        version=_text(item, "version"),
        digest=_digest(_text(item, "digest") or _text(item, SHA256)),
        uri=_text(item, "uri", LOCATION),
        alias=_text(item, "alias"),
        description=_prose(item, "description"),
        license=_text(item, "license"),
        icon=_text(item, "icon", LOCATION),
        urls=_texts(item, "urls", LOCATION),
        tags=_texts(item, "tags"),
        capabilities=_builds(item.get("capabilities")),
    )


def _text(item: Mapping[str, Any], key: str, limit: int = NAME) -> str:
    return _scalar(item.get(key), key, limit)


def _scalar(value: Any, key: str, limit: int) -> str:
    if value is None:
        return ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)  # `version: 1.2` is a number to YAML
    if not isinstance(value, str):
        raise InvalidInput(f"its {key} is not text.")
    return checked(value.strip(), field=f"its {key}", limit=limit)


def _prose(item: Mapping[str, Any], key: str) -> str:
    value = item.get(key)
    return readable(value, limit=PROSE) if isinstance(value, str) else ""


def _texts(item: Mapping[str, Any], key: str, limit: int = NAME) -> tuple[str, ...]:
    values = item.get(key) or []
    if not isinstance(values, list) or len(values) > MOST_LISTED:
        raise InvalidInput(f"its {key} is not a list of at most {MOST_LISTED}.")
    return tuple(_scalar(value, key, limit) for value in values)


def _builds(value: Any) -> dict[str, str]:
    if not value:
        return {}
    if not isinstance(value, dict) or len(value) > MOST_LISTED:
        raise InvalidInput(f"its capabilities are not an object of at most {MOST_LISTED}.")
    return {
        _scalar(capability, "capability", NAME): _scalar(build, "capabilities", NAME)
        for capability, build in value.items()
    }


def _digest(text: str) -> str:
    """With its kind, as workers report it."""
    bare = len(text) == 64 and all(digit in "0123456789abcdefABCDEF" for digit in text)
    return f"{SHA256}:{text.lower()}" if bare else text


def _first(problems: Iterable[str]) -> tuple[str, ...]:
    told = list(problems)
    more = len(told) - MOST_PROBLEMS
    return tuple(told[:MOST_PROBLEMS]) + ((f"And {more} more.",) if more > 0 else ())
