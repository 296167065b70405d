"""How the API is described at /api/schema."""

from typing import Any

Endpoint = tuple[str, str, str, Any]


def without_trailing_slash(endpoints: list[Endpoint]) -> list[Endpoint]:
    """Both spellings of a path are served; one is enough to describe it."""
    return [endpoint for endpoint in endpoints if not endpoint[0].endswith("/")]
