"""What a model is: typed load options, and the revision that stands for their meaning; pure.

The names and types are those of the wire's ModelOptions: whatever passes here can be sent.
"""

import difflib
import hashlib
import json
import math
import re
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Self

from google.protobuf.descriptor import FieldDescriptor

from clustermgr.lib.errors import InvalidInput
from clustermgr.lib.text import checked
from nodes.budgets import LARGEST, scale
from nodes.labelling import shown
from worker.rpc.backend_pb2 import ModelOptions

MAX_NAME, MAX_BACKEND, MAX_TEXT, MAX_ITEMS = 255, 128, 65536, 1000
# Last words of an address below /api/models/: a model of that name could never be asked for
VERBS = frozenset(
    {"load", "unload", "move", "replicas", "jobs", "decisions", "why", "load-status", "rule"}
)
KEYS = ("name", "backend", "options", "size", "vram", "concurrency_group")
ALIASES = {"model_name": "name", "size_bytes": "size", "vram_bytes": "vram"}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]i?B|B)?", re.IGNORECASE)
_BACKEND = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+:-]*")
INT32 = (-(2**31), 2**31 - 1)

Options = dict[str, Any]
Kind = Any  # a message's Descriptor: python's, or that of protobuf's C library


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """Everything an operator says about a model, checked."""

    name: str
    backend: str
    options: Options
    size_bytes: int | None = None
    vram_bytes: int | None = None
    concurrency_group: str = ""

    @classmethod
    def of(cls, document: object) -> Self:
        """Read a whole definition; a key that nobody knows is refused, not lost."""
        given = keys_of(document)
        name = check_name(given.get("name"))
        return cls(
            name=name,
            backend=check_backend(given.get("backend")),
            options=check_options(given.get("options", {}), model=name),
            size_bytes=size(given.get("size"), field="size"),
            vram_bytes=size(given.get("vram"), field="vram"),
            concurrency_group=_text(given.get("concurrency_group", ""), "concurrency_group", 255),
        )

    def changed(self, document: object) -> Self:
        """The same with what `document` says instead; what it leaves out stays."""
        given = keys_of(document)
        if check_name(given.pop("name", self.name)) != self.name:
            raise InvalidInput(
                "A model cannot be renamed: replicas, rules and callers know it by its name. "
                f"Define it anew, then delete {self.name}."
            )
        stays = {"name": self.name, "backend": self.backend, "options": self.options}
        rest = {"size": self.size_bytes, "vram": self.vram_bytes}
        group = {"concurrency_group": self.concurrency_group}
        return self.of({**stays, **rest, **group, **given})

    @property
    def revision(self) -> str:
        return revision(self.backend, self.options)


def keys_of(document: object) -> dict[str, Any]:
    """The known keys of a definition, by the names we use."""
    if not isinstance(document, Mapping):
        raise InvalidInput("A model is an object with a name, a backend and options.")
    found: dict[str, Any] = {}
    for key, value in document.items():
        name = ALIASES.get(key, key)
        if name not in KEYS:
            raise InvalidInput(f"A model has no {shown(str(key))}{nearest(str(key), KEYS)}")
        if name in found:
            raise InvalidInput(f"The model says its {name} twice.")
        found[name] = value
    return found


def check_name(value: object) -> str:
    name = _text(value, "The model's name", MAX_NAME)
    if not name.strip():
        raise InvalidInput("The model needs a name.")
    if name != name.strip() or "#" in name or "\\" in name:
        raise InvalidInput(
            f"{shown(name)} is no name for a model: no #, no backslash, no space at its ends."
        )
    parts = name.split("/")
    if "" in parts or "." in parts or ".." in parts:
        raise InvalidInput(f"{shown(name)} is no name for a model: it reads like a path.")
    if (parts[-1] in VERBS and len(parts) > 1) or name == "import":
        raise InvalidInput(f"{shown(name)} is no name for a model: its address is taken.")
    return name


def check_backend(value: object) -> str:
    backend = _text(value, "The backend", MAX_BACKEND)
    if not backend:
        raise InvalidInput("The model needs a backend.")
    if not _BACKEND.fullmatch(backend):
        raise InvalidInput(f"{shown(backend)} is no name of a backend.")
    return backend


def check_options(given: object, *, model: str) -> Options:
    """The options that say something, each of its type; `Model` is the model's name unless said."""
    checked_ = _message(given, ModelOptions.DESCRIPTOR, "")
    return dict(sorted({"Model": model, **checked_}.items()))


def revision(backend: str, options: Options) -> str:
    """SHA-256 of what would be sent: order, formatting and defaults make no difference."""
    meaning = {"backend": backend, "options": _meant(options, ModelOptions.DESCRIPTOR)}
    text = json.dumps(meaning, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def size(value: object, *, field: str) -> int | None:
    """A number of bytes, or words like "4.1 GiB"; None and "" are unknown."""
    if value is None or value == "":
        return None
    if isinstance(value, str):
        return _bounded(_size_in_words(value, field), field)
    if type(value) is not int:
        raise InvalidInput(f'{field} must be a number of bytes, or words like "4.1 GiB".')
    return _bounded(value, field)


def _size_in_words(text: str, field: str) -> int:
    found = _SIZE.fullmatch(text.strip()) if len(text) < 64 else None
    if found is None:
        raise InvalidInput(f"{field}: {shown(text)} is no size; write 4.1 GiB, 4GB or bytes.")
    return int(Decimal(found[1]) * scale((found[2] or "").lower()))


def _bounded(count: int, field: str) -> int:
    if not 0 <= count <= LARGEST:
        raise InvalidInput(f"{field} must be between 0 and {LARGEST} bytes.")
    return count


def _message(given: object, kind: Kind, where: str) -> Options:
    if not isinstance(given, Mapping):
        raise InvalidInput(f"{where.rstrip('.') or 'options'} must be an object.")
    found: Options = {}
    for key, value in given.items():
        field = kind.fields_by_name.get(str(key))
        if field is None:
            hint = nearest(str(key), kind.fields_by_name)
            raise InvalidInput(f"There is no option {shown(where + str(key))}{hint}")
        if value is None:
            continue
        read = _value(value, field, f"{where}{field.name}")
        if field.has_presence or read not in ("", 0, False, []):
            found[field.name] = read
    return found


def _value(value: object, field: FieldDescriptor, name: str) -> Any:
    if not field.is_repeated:
        return _one(value, field, name)
    if not isinstance(value, list):
        raise InvalidInput(f"{name} must be a list.")
    if len(value) > MAX_ITEMS:
        raise InvalidInput(f"{name} has {len(value)} items; at most {MAX_ITEMS} are allowed.")
    return [_one(item, field, f"{name}[{place}]") for place, item in enumerate(value)]


def _one(value: object, field: FieldDescriptor, name: str) -> Any:
    if field.message_type is not None:
        return _message(value, field.message_type, f"{name}.")
    return READERS[field.cpp_type](value, name)


def _flag(value: object, name: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidInput(f"{name} must be true or false, not {_told(value)}.")
    return value


def _whole(value: object, name: str) -> int:
    if type(value) is not int:
        raise InvalidInput(f"{name} must be a whole number, not {_told(value)}.")
    low, high = INT32
    if not low <= value <= high:
        raise InvalidInput(f"{name} must be between {low} and {high}.")
    return value


def _number(value: object, name: str) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise InvalidInput(f"{name} must be a number, not {_told(value)}.")
    carried = _as_float32(value)
    if not math.isfinite(carried):
        raise InvalidInput(f"{name} is too large a number, or none.")
    return value if carried else 0  # also for -0.0 and what 32 bits cannot tell from nothing


def _string(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise InvalidInput(f"{name} must be a text, not {_told(value)}.")
    for line in value.split("\n"):
        checked(line.replace("\t", " "), field=name, limit=MAX_TEXT)
    if len(value) > MAX_TEXT:
        raise InvalidInput(f"{name} has {len(value)} characters; at most {MAX_TEXT} are allowed.")
    return value


READERS: dict[int, Callable[[object, str], Any]] = {
    FieldDescriptor.CPPTYPE_BOOL: _flag,
    FieldDescriptor.CPPTYPE_INT32: _whole,
    FieldDescriptor.CPPTYPE_FLOAT: _number,
    FieldDescriptor.CPPTYPE_STRING: _string,
}


def _meant(options: Options, kind: Kind) -> Options:
    """What the wire would carry: numbers with a fraction have 32 bits there."""
    meant: Options = {}
    for key, value in options.items():
        field = kind.fields_by_name[key]
        if field.cpp_type == FieldDescriptor.CPPTYPE_FLOAT:
            many = value if field.is_repeated else [value]
            meant[key] = [struct.pack("<f", number).hex() for number in many]
        else:
            meant[key] = value
    return meant


def _as_float32(number: float) -> float:
    try:
        carried: float = struct.unpack("<f", struct.pack("<f", number))[0]
    except OverflowError:
        return math.inf
    return carried


def _text(value: object, field: str, limit: int) -> str:
    if value is None:
        value = ""
    if not isinstance(value, str):
        raise InvalidInput(f"{field} must be a text, not {_told(value)}.")
    return checked(value, field=field, limit=limit)


def _told(value: object) -> str:
    return shown(value) if isinstance(value, str) else f"a {type(value).__name__}"


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a sentence: "; did you mean ...?" for a slip of the finger."""
    wanted = _closest(name, known)
    return f"; did you mean {wanted}?" if wanted else "."


def is_slip(name: str, known: Iterable[str]) -> bool:
    """Whether somebody wanted to write one of the known names."""
    return bool(_closest(name, known))


def _closest(name: str, known: Iterable[str]) -> str:
    """The known name that is nearest, capitals or not; empty: none is near."""
    by_lower = {other.lower(): other for other in known}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return by_lower[found[0]] if found else ""
