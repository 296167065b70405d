"""A model as one line of a list, with cells that a refresh finds again by their ids."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.contrib.admin.utils import quote
from django.template.loader import render_to_string
from django.utils.html import format_html
from django.utils.safestring import SafeString

from nodes.presenting.displays import ago
from scheduling.presenting import words
from scheduling.services import standing as standings
from scheduling.services.standing import Standing

LIVE = ("state", "count", "why")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One model, ready for a template."""

    standing: Standing
    key: str  # a name may hold what an element's id may not
    state: str
    wish: str
    age: str
    retry: str

    @property
    def name(self) -> str:
        return self.standing.name

    @property
    def names(self) -> list[str]:
        """What a page about this one alone asks for."""
        return [self.standing.name]

    @property
    def quoted(self) -> str:
        """As the admin's addresses have it."""
        return quote(self.standing.name)


def rows(names: Iterable[str], *, now: datetime) -> list[Row]:
    return [row(one, now=now) for one in standings.of(names)]


def row(standing: Standing, *, now: datetime) -> Row:
    model, rule = standing.model, standing.rule
    retries = [
        moment
        for moment in (
            model.retry_at if model and model.failures else None,
            rule.unsatisfiable_until if rule else None,
        )
        if moment is not None
    ]
    return Row(
        standing=standing,
        key=hashlib.sha256(standing.name.encode()).hexdigest()[:16],
        state=words.state(standing),
        wish=words.wish(rule, desired=standing.desired),
        age=ago(standing.since, now=now) if standing.since and standing.since <= now else "",
        retry=words.coming(max(retries), now=now) if retries and standing.why else "",
    )


def cell(name: str, row: Row, *, oob: bool = False) -> SafeString:
    return format_html(
        '<div id="m-{}-{}" class="cm-cell"{}>{}</div>',
        row.key,
        name,
        SafeString(' hx-swap-oob="true"' if oob else ""),
        render_to_string(f"console/models/_{name}.html", {"row": row}),
    )
