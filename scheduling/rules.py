"""What may be asked of a model's replicas: LocalAI's rule and what we know besides; pure.

LocalAI's clients send the whole rule, except for the four routing fields, which stay what they
were when left out. So do ours, of which they have never heard.
"""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from clustermgr.lib.errors import InvalidInput
from nodes.labelling import check_key, check_value, shown
from nodes.selectors import Operator, Selector
from nodes.states import TaintEffect
from scheduling.definitions import check_name, nearest
from scheduling.states import RoutePolicy, Strategy

MOST_REPLICAS = 10_000  # more is a slip of the finger, and a tick that plans for ever
MOST_TOLERATIONS = 32
LARGEST_INT = 2**31 - 1

REPLACED = ("selector", "min_replicas", "max_replicas", "spread_all")
ROUTING = ("route_policy", "balance_abs_threshold", "balance_rel_threshold", "min_prefix_match")
OURS = ("tolerations", "pinned", "priority", "strategy")
KEYS = frozenset({"model_name", "node_selector", *REPLACED, *ROUTING, *OURS})
Columns = dict[str, Any]


def read(document: object) -> tuple[str, Columns]:
    """The model a rule is about, and the columns it sets; what may stay and is left out stays."""
    if not isinstance(document, Mapping):
        raise InvalidInput("A rule is an object with a model_name.")
    unknown = [key for key in document if key not in KEYS]
    if unknown:
        raise InvalidInput(f"A rule has no {shown(unknown[0])}{nearest(str(unknown[0]), KEYS)}")
    given = {key: value for key, value in document.items() if value is not None}
    if not given.get("model_name"):
        raise InvalidInput("model_name is required.")
    name = _about("model_name", check_name, given["model_name"])
    columns: Columns = {"selector": _about("selector", selector_of, given)}
    whole = {**UNSAID, **given}
    columns |= {key: _about(key, READERS[key], whole[key], key) for key in READERS if key in whole}
    _about("min_replicas", _check_together, columns)
    return name, columns


def _about(field: str, check: Callable[..., Any], *given: object) -> Any:
    """The same refusals, which then say what of the rule they are about."""
    try:
        return check(*given)
    except InvalidInput as refusal:
        refusal.told = {"field": field}
        raise


def selector_of(given: Mapping[str, Any]) -> str:
    """In our language, from ours or LocalAI's; unreadable is refused, never everything."""
    pairs, text = given.get("node_selector"), given.get("selector")
    if text is None:
        return str(Selector.from_wire(_pairs(pairs)))
    if not isinstance(text, str):
        raise InvalidInput("selector must be a text like tier=fast,!old.")
    selector = str(Selector.parse(text))
    # We answer with both, and what we answered may be sent back
    if pairs in (None, "") or as_pairs(str(Selector.from_wire(_pairs(pairs)))) == as_pairs(
        selector
    ):
        return selector
    raise InvalidInput("Give node_selector or selector, not both, unless they mean the same.")


def _pairs(given: object) -> object:
    """LocalAI takes an object and answers with the same in a string: both can be sent back."""
    if given is None or given == "":
        return {}
    if not isinstance(given, str):
        return given
    try:
        return json.loads(given)
    except (ValueError, RecursionError):
        raise InvalidInput("node_selector holds no JSON object of label keys and values.") from None


def as_pairs(text: str) -> dict[str, str] | None:
    """LocalAI's form of a selector; None where it has no word for it, or nobody can read it."""
    try:
        requirements = Selector.parse(text).requirements
    except InvalidInput:
        return None
    keys = [one.key for one in requirements]
    plain = all(one.operator is Operator.IN and len(one.values) == 1 for one in requirements)
    if not plain or len(set(keys)) < len(keys):
        return None
    return {one.key: one.values[0] for one in requirements}


def _check_together(columns: Columns) -> None:
    least, most = columns["min_replicas"], columns["max_replicas"]
    if columns["spread_all"] and (least or most):
        raise InvalidInput(
            "spread_all puts one replica on every matching node; "
            "min_replicas and max_replicas must be 0 with it."
        )
    if most and least > most:
        raise InvalidInput(f"min_replicas ({least}) is more than max_replicas ({most}).")


def _count(value: object, name: str) -> int:
    if type(value) is not int:
        raise InvalidInput(f"{name} must be a whole number.")
    if value < 0:
        raise InvalidInput(f"{name} must not be negative.")
    if value > MOST_REPLICAS:
        raise InvalidInput(f"{name} must not be more than {MOST_REPLICAS}.")
    return value


def _flag(value: object, name: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidInput(f"{name} must be true or false.")
    return value


def _word(choices: Any) -> Callable[[object, str], str]:
    def read_word(value: object, name: str) -> str:
        if value not in choices.values:
            words = ", ".join(word or '""' for word in choices.values)
            raise InvalidInput(f"{name} must be one of {words}.")
        return str(value)

    return read_word


def _whole(low: int) -> Callable[[object, str], int]:
    def read_whole(value: object, name: str) -> int:
        if type(value) is not int or not low <= value <= LARGEST_INT:
            raise InvalidInput(f"{name} must be a whole number from {low} to {LARGEST_INT}.")
        return value

    return read_whole


def _number(value: object, name: str) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise InvalidInput(f"{name} must be a number.")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InvalidInput(f"{name} must be a number.")
    return number


def _ratio(value: object, name: str) -> float:
    number = _number(value, name)
    if number != 0 and number < 1:
        raise InvalidInput(f"{name} must be 0 (inherit) or at least 1.")
    return number


def _share(value: object, name: str) -> float:
    number = _number(value, name)
    if not 0 <= number <= 1:
        raise InvalidInput(f"{name} must be between 0 and 1.")
    return number


def _tolerations(value: object, name: str) -> list[dict[str, str]]:
    if not isinstance(value, list) or not all(isinstance(one, Mapping) for one in value):
        raise InvalidInput(f"{name} must be a list of objects with key, value and effect.")
    if len(value) > MOST_TOLERATIONS:
        raise InvalidInput(f"{name} has more than {MOST_TOLERATIONS} entries.")
    return [_toleration(one, name) for one in value]


def _toleration(given: Mapping[Any, Any], name: str) -> dict[str, str]:
    checks: dict[str, Callable[[object], str]] = {
        "key": check_key,
        "value": check_value,
        "effect": lambda value: _word(TaintEffect)(value, f"{name}.effect"),
    }
    unknown = [key for key in given if key not in checks]
    if unknown:
        raise InvalidInput(f"A toleration has no {shown(unknown[0])}.")
    return {key: checks[key](value) for key, value in given.items() if value is not None}


UNSAID: Columns = {"min_replicas": 0, "max_replicas": 0, "spread_all": False}
READERS: dict[str, Callable[[object, str], Any]] = {
    "min_replicas": _count,
    "max_replicas": _count,
    "spread_all": _flag,
    "route_policy": _word(RoutePolicy),
    "balance_abs_threshold": _whole(0),
    "balance_rel_threshold": _ratio,
    "min_prefix_match": _share,
    "tolerations": _tolerations,
    "pinned": _flag,
    "priority": _whole(-LARGEST_INT),
    "strategy": _word(Strategy),
}
