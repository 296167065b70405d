"""What the index page says: first of all, whether the manager itself is well."""

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from clustermgr.health import Check, current_report

TITLES = {
    "database": "PostgreSQL",
    "nats": "NATS",
    "broker": "Celery broker",
    "beat": "Clockwork",
    "heartbeats": "Heartbeats",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PartLine:
    """One part of the manager, in words."""

    title: str
    ok: bool
    reason: str
    age: str


def parts() -> list[PartLine]:
    report = current_report(timezone.now())
    return [_line(TITLES[name], check) for name, check in report.items()]


def _line(title: str, check: Check) -> PartLine:
    seconds = check.age_seconds or 0.0
    age = f"Last tick {seconds:.0f} s ago" if title == TITLES["beat"] else ""
    if not check.ok:
        age = f"Failing for {seconds:.0f} s"
    return PartLine(title=title, ok=check.ok, reason=check.reason, age=age)


def add_to_index(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """The theme's hook: everything templates/admin/index.html shows."""
    return {**context, "title": "Overview", "parts": parts()}


def parts_fragment(request: HttpRequest) -> HttpResponse:
    """The live half of the panel; the page asks for it every ten seconds."""
    return render(request, "console/_parts.html", {"parts": parts()})
