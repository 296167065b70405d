"""Lists of models as people write them in files."""

from collections.abc import Mapping
from typing import Any

import yaml

from clustermgr.lib.errors import InvalidInput


def documents(asked: Mapping[str, Any]) -> Any:
    """What is to be imported: given as it is, or as text."""
    if "models" in asked and "yaml" in asked:
        raise InvalidInput("Give models or yaml, not both.")
    return asked["models"] if "models" in asked else read_yaml(asked.get("yaml", ""))


def read_yaml(text: str) -> Any:
    """Whatever the text says; JSON is YAML, too."""
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f" in line {mark.line + 1}" if mark else ""
        raise InvalidInput(f"This is no YAML{line}.") from error
