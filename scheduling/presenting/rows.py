"""A model as one line of a list, with cells that a refresh finds again by their ids."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.contrib.admin.utils import quote
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.html import format_html
from django.utils.safestring import SafeString

from scheduling.presenting import words
from scheduling.services import standing as standings
from scheduling.services.standing import Standing

LIVE = ("state", "count", "why")
ASK = "scheduling.view_placementdecision"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One model, ready for a template."""

    standing: Standing
    key: str  # a name may hold what an element's id may not
    state: str
    wish: str
    age: str
    retry: str
    may_ask: bool  # "Why?"

    @property
    def pending(self) -> bool:
        """Something is waited for."""
        return self.state in ("starved", "outdated", "loading") or bool(self.standing.why)

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


def rows(names: Iterable[str], *, request: HttpRequest, now: datetime) -> list[Row]:
    may_ask = request.user.has_perm(ASK)
    return [row(one, may_ask=may_ask, now=now) for one in standings.of(names)]


def row(standing: Standing, *, may_ask: bool, now: datetime) -> Row:
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
        age=words.lasting(now - standing.since) if standing.since and standing.since <= now else "",
        retry=words.coming(max(retries), now=now) if retries and standing.why else "",
        may_ask=may_ask,
    )


def cell(name: str, row: Row, *, oob: bool = False) -> SafeString:
    return format_html(
        '<div id="m-{}-{}" class="cm-cell"{}>{}</div>',
        row.key,
        name,
        SafeString(' hx-swap-oob="true"' if oob else ""),
        render_to_string(f"console/models/_{name}.html", {"row": row}),
    )
