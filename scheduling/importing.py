"""Lists of models as people write them in files."""

from typing import Any

import yaml

from clustermgr.lib.errors import InvalidInput


def read_yaml(text: str) -> Any:
    """Whatever the text says; JSON is YAML, too."""
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f" in line {mark.line + 1}" if mark else ""
        raise InvalidInput(f"This is no YAML{line}.") from error
