"""A rule as a form: three modes instead of columns that exclude each other."""

import json
from collections.abc import Mapping
from typing import Any

from clustermgr.lib.errors import DomainError, InvalidInput
from nodes.states import TaintEffect
from nodes.taints import Toleration
from scheduling.models import ModelSchedulingConfig
from scheduling.planning import wishes
from scheduling.presenting import words
from scheduling.states import RoutePolicy, Strategy

# Where the form has room for a sentence
FIELDS = frozenset(
    {
        *("model_name", "mode", "min_replicas", "max_replicas", "selector", "priority"),
        *("balance_abs_threshold", "balance_rel_threshold", "min_prefix_match", "tolerations"),
    }
)
NUMBERS = {"balance_abs_threshold": int, "balance_rel_threshold": float, "min_prefix_match": float}

POLICIES = {
    RoutePolicy.INHERIT: "as the cluster does",
    RoutePolicy.ROUND_ROBIN: "in turn, the idlest first",
    RoutePolicy.PREFIX_CACHE: "to whoever has seen the prompt's beginning",
    RoutePolicy.PREFIX_SHADOW: "in turn; only measure what prefixes would gain",
}


CHOICES: dict[str, Any] = {
    "modes": words.MODES,
    "strategies": Strategy.choices,
    "policies": list(POLICIES.items()),
}


def context(model_name: str, rule: ModelSchedulingConfig | None) -> dict[str, Any]:
    """What the form shows; of a rule that is not there yet, what it would be."""
    shown = rule or ModelSchedulingConfig(model_name=model_name, min_replicas=1)
    return {
        "rule": shown,
        "rule_exists": rule is not None,
        "mode": words.mode(shown),
        **_read_tolerations(shown),
        **CHOICES,
    }


def _read_tolerations(rule: ModelSchedulingConfig) -> dict[str, Any]:
    try:
        found = wishes.read_tolerations(rule.tolerations)
    except InvalidInput as refusal:  # the form is where it can be put right
        return {"tolerations": json.dumps(rule.tolerations), "wrong": {"tolerations": refusal}}
    return {"tolerations": "\n".join(map(_written, found))}


def again(form: Mapping[str, str], refusal: DomainError) -> dict[str, Any]:
    """The form as it was filled in, with the sentence at the field it is about."""
    field = refusal.told.get("field", "")
    return {
        "rule": dict(form.items()),
        "rule_exists": bool(form.get("version")),
        "mode": form.get("mode", ""),
        "tolerations": form.get("tolerations", ""),
        "wrong": {field: str(refusal)} if field in FIELDS else {},
        "refusal": "" if field in FIELDS else str(refusal),
        **CHOICES,
    }


def read(form: Mapping[str, str], *, model_name: str) -> dict[str, Any]:
    """The document that the form means; `rules` checks what it says."""
    mode = form.get("mode", "")
    if mode not in words.MODES:
        raise _wrong("mode", "Choose a mode: pin, auto-scale or spread.")
    scale = mode == "scale"
    return {
        "model_name": model_name,
        "selector": form.get("selector", ""),
        "min_replicas": _number(form, "min_replicas", int) if scale else 0,
        "max_replicas": _number(form, "max_replicas", int) if scale else 0,
        "spread_all": mode == "spread",
        "pinned": "pinned" in form,
        "priority": _number(form, "priority", int),
        "strategy": form.get("strategy", ""),
        "route_policy": form.get("route_policy", ""),
        "tolerations": _tolerations(form.get("tolerations", "")),
        **{name: _number(form, name, kind) for name, kind in NUMBERS.items()},
    }


def _number(form: Mapping[str, str], name: str, kind: Any) -> Any:
    text = form.get(name, "").strip()
    try:
        return kind(text) if text else 0
    except ValueError:
        raise _wrong(name, f"{name} must be a number.") from None


def _wrong(field: str, sentence: str) -> InvalidInput:
    refusal = InvalidInput(sentence)
    refusal.told = {"field": field}
    return refusal


def _tolerations(text: str) -> list[dict[str, str]]:
    """One in a line: key=value:effect, of which everything but the key may be left out."""
    found = []
    for line in filter(None, (line.strip() for line in text.splitlines())):
        pair, _, effect = line.rpartition(":")
        if effect not in TaintEffect.values:
            pair, effect = line, ""
        key, equals, value = pair.partition("=")
        one = {"key": key.strip(), **({"value": value.strip()} if equals else {})}
        found.append({**one, **({"effect": effect} if effect else {})})
    return found


def _written(toleration: Toleration) -> str:
    value = f"={toleration.value}" if toleration.value is not None else ""
    effect = f":{toleration.effect}" if toleration.effect else ""
    return f"{toleration.key or ''}{value}{effect}"
