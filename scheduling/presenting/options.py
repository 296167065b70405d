"""Load options as inputs: each by its type, read back as what it means."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from clustermgr.lib.errors import InvalidInput
from worker.rpc.backend_pb2 import ModelOptions

PREFIX = "o."
FIELDS = ModelOptions.DESCRIPTOR.fields
COMMON = (
    *("Model", "ContextSize", "NGPULayers", "Threads", "NBatch", "F16Memory", "MMap"),
    *("Embeddings", "Reranking", "FlashAttention", "MMProj", "LoraAdapter", "Options"),
)
KINDS = {
    FieldDescriptor.CPPTYPE_BOOL: "flag",
    FieldDescriptor.CPPTYPE_INT32: "whole",
    FieldDescriptor.CPPTYPE_FLOAT: "number",
    FieldDescriptor.CPPTYPE_STRING: "text",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    name: str
    kind: str  # flag, whole, number, text, lines or json
    value: str

    @property
    def field(self) -> str:
        return f"{PREFIX}{self.name}"


def inputs(options: Mapping[str, Any]) -> tuple[list[Input], list[Input]]:
    """What is set or often needed, and the rest."""
    return _parted(
        _input(field, _written(kind(field), options.get(field.name))) for field in FIELDS
    )


def typed(form: Mapping[str, str]) -> tuple[list[Input], list[Input]]:
    """The same as somebody filled it in, readable or not."""
    return _parted(_input(field, form.get(f"{PREFIX}{field.name}", "")) for field in FIELDS)


def _parted(inputs: Iterable[Input]) -> tuple[list[Input], list[Input]]:
    found = list(inputs)
    shown = [one for one in found if one.value or one.name in COMMON]
    order = {name: place for place, name in enumerate(COMMON)}
    shown.sort(key=lambda one: (order.get(one.name, len(order)), one.name))
    rest = [one for one in found if one not in shown]
    return shown, sorted(rest, key=lambda one: one.name)


def read(form: Mapping[str, str]) -> dict[str, Any]:
    """The options that were filled in; `definitions` checks what they say."""
    filled: dict[str, Any] = {}
    for field in FIELDS:
        text = form.get(f"{PREFIX}{field.name}", "").replace("\r\n", "\n")
        if text.strip():
            filled[field.name] = _value(field.name, kind(field), text)
    return filled


def kind(field: Any) -> str:
    if field.message_type is not None:
        return "json"
    if field.is_repeated:
        return "lines"
    return KINDS[field.cpp_type]


def _input(field: Any, text: str) -> Input:
    return Input(name=field.name, kind=kind(field), value=text)


def _written(kind: str, value: Any) -> str:
    if value is None:
        return ""
    if kind == "json":
        return json.dumps(value)
    if kind == "lines":
        return "\n".join(str(item) for item in value)
    return str(value).lower() if kind == "flag" else str(value)


def _value(name: str, kind: str, text: str) -> Any:
    try:
        match kind:
            case "flag":
                return {"true": True, "false": False}[text.strip()]
            case "whole":
                return int(text)
            case "number":
                return float(text)
            case "json":
                return json.loads(text)
    except (ValueError, KeyError, RecursionError):
        raise InvalidInput(f"{name} cannot be read.") from None
    if kind == "lines":
        lines = [line for line in text.split("\n") if line.strip()]
        return [float(line) for line in lines] if name == "LoraScales" else lines
    return text
