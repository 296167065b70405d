"""Rules from the environment: at every start they are made to be what it says."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml
from django.db import transaction

from clustermgr.lib.errors import InvalidInput
from scheduling import rules
from scheduling.models import ModelSchedulingConfig
from scheduling.services import policies

ACTOR = "environment"
ALL, AUTO = ("all", "true", True), ("", "auto", "false", False, None)
# The environment is the whole truth about what LocalAI knows: what it leaves out is the default
DEFAULTS: dict[str, Any] = {
    "route_policy": "",
    "balance_abs_threshold": 0,
    "balance_rel_threshold": 0,
    "min_prefix_match": 0,
}


def documents(*, text: str, path: str) -> list[dict[str, Any]]:
    """What the JSON in the environment and then the YAML in the file ask for."""
    return [*_of_text(text), *_of_file(path)]


@transaction.atomic
def seed(found: list[dict[str, Any]], *, now: datetime) -> int:
    """All of them or none; rules of other models are not touched. Says how many changed."""
    changed = 0
    for document in found:
        model_name, columns = rules.read({**DEFAULTS, **document})
        stored = ModelSchedulingConfig.objects.filter(model_name=model_name).first()
        if stored and all(getattr(stored, key) == value for key, value in columns.items()):
            continue  # a restart is no edit: its pause goes on
        policies.put_columns(model_name, columns, by=ACTOR, now=now)
        changed += 1
    return changed


def _of_text(text: str) -> list[dict[str, Any]]:
    source = "CLUSTER_MODEL_SCHEDULING"
    if not text.strip():
        return []
    try:
        return _listed(json.loads(text), source)
    except ValueError as error:
        raise InvalidInput(f"{source} is no JSON: {error}") from error


def _of_file(path: str) -> list[dict[str, Any]]:
    source = "CLUSTER_MODEL_SCHEDULING_CONFIG"
    if not path:
        return []
    try:
        return _listed(yaml.safe_load(Path(path).read_text()), source)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{source}: {path} cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise InvalidInput(f"{source}: {path} is no YAML: {error}") from error


def _listed(found: object, source: str) -> list[dict[str, Any]]:
    if found is None:
        return []
    if not isinstance(found, list):
        raise InvalidInput(f"{source} must be a list of rules.")
    return [_rule(one, f"{source}, rule {place}") for place, one in enumerate(found, start=1)]


def _rule(given: object, where: str) -> dict[str, Any]:
    """LocalAI's short forms spelled out, and checked before anything is written."""
    if not isinstance(given, dict):
        raise InvalidInput(f"{where} must be an object.")
    document = dict(given)
    if "model" in document:
        document.setdefault("model_name", document.pop("model"))
    if "replicas" in document:
        document["spread_all"] = _spread(document.pop("replicas"), where)
    try:
        rules.read(document)
    except InvalidInput as refusal:
        raise InvalidInput(f"{where}: {refusal}") from refusal
    return document


def _spread(word: object, where: str) -> bool:
    word = word.strip().lower() if isinstance(word, str) else word
    if isinstance(word, (int, float)) and not isinstance(word, bool):
        raise InvalidInput(
            f"{where}: replicas is all or auto; for a number use min_replicas and max_replicas."
        )
    if word in ALL:
        return True
    if word in AUTO:
        return False
    raise InvalidInput(f"{where}: replicas must be all or auto.")
