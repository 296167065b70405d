"""The handful of numbers on the index page."""

from typing import Any

from django.http import HttpRequest


def add_to_index(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    return context
