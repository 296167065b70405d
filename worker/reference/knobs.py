"""How the reference backend is made to misbehave.

Each knob is an environment variable `REFERENCE_<NAME>`, or an entry `name:value` of
ModelOptions.Options, which wins and lasts until the next LoadModel. The first three concern the
process and exist as variables only.

    die_at_once      exit code with which to end before listening; the reason goes to stderr
    never_ready      live on without ever listening
    start_seconds    wait so long before listening
    load_seconds     LoadModel takes so long
    load_fails       `status`: INTERNAL, as Go backends do; `result`: success=false, as Python ones
    memory_bytes     LoadModel really allocates and touches so much; Free gives it back
    crash            `at_load`: the process ends in the middle; `after_load`: just after the answer
    predict_seconds  Predict and PredictStream take so long, spread over the tokens
    serial           one request at a time: Health waits for Predict (busy, not dead)
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

TRUE = frozenset({"1", "true", "yes", "on"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Knobs:
    die_at_once: int = 0
    never_ready: bool = False
    start_seconds: float = 0.0
    load_seconds: float = 0.0
    load_fails: str = ""
    memory_bytes: int = 0
    crash: str = ""
    predict_seconds: float = 0.0
    serial: bool = False

    @classmethod
    def read(cls, environment: Mapping[str, str], options: Iterable[str] = ()) -> Self:
        """Raise ValueError, with the name in it, for a value that means nothing."""
        given = {
            name.removeprefix("REFERENCE_").lower(): value
            for name, value in environment.items()
            if name.startswith("REFERENCE_")
        }
        for option in options:
            name, _, value = option.partition(":")
            given[name.strip().lower()] = value.strip()
        return cls(
            **{
                field.name: _value(field.name, field.type, given[field.name])
                for field in fields(cls)
                if given.get(field.name)
            }
        )


def _value(name: str, kind: object, text: str) -> Any:  # whatever type the field has
    if kind is bool:
        return text.lower() in TRUE
    if not callable(kind):
        raise TypeError(f"{name} has no simple type")
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"{name}: {text!r} is not a number") from None
