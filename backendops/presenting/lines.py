"""An operation as one line of a list, with cells that a refresh finds again by their ids."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.template.loader import render_to_string
from django.utils.html import format_html
from django.utils.safestring import SafeString

from backendops.models import Operation
from backendops.presenting import words
from backendops.services import rollups
from backendops.services.queueing import Place
from backendops.services.rollups import Rollup
from backendops.states import OperationState
from nodes.presenting.displays import Bar, ago

# What a refresh replaces; the rest of a row stays, its checkbox above all
LIVE = ("state", "nodes", "progress", "age")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One operation, ready for a template."""

    operation: Operation
    roll: Rollup
    state: str
    label: str
    headline: str
    nodes: str
    bar: Bar | None
    amounts: str
    place: str
    age: str
    took: str  # empty while it is not over


def lines(operations: Sequence[Operation], *, now: datetime) -> list[Line]:
    """One query, however many operations and nodes; two more if one of them waits."""
    rolls = rollups.rollups(operations, now=now)
    waiting = [one for one, roll in rolls.items() if roll.state == OperationState.QUEUED]
    line = rollups.places(waiting) if waiting else {}
    return [_line(one, rolls[one.pk], place=line.get(one.pk), now=now) for one in operations]


def _line(operation: Operation, roll: Rollup, *, place: Place | None, now: datetime) -> Line:
    state = roll.state
    queued = state == OperationState.QUEUED
    return Line(
        operation=operation,
        roll=roll,
        state=state.value,
        label=words.label(roll),
        headline=words.headline(roll),
        nodes=words.nodes(roll) or ("done" if roll.done else "one node"),
        bar=bar(roll),
        amounts=amounts(roll),
        place=words.place(place) if queued else "",
        age=ago(operation.requested_at, now=now),
        took=_took(roll),
    )


def _took(roll: Rollup) -> str:
    return words.lasting(roll.finished_at - roll.requested_at) if roll.finished_at else ""


def bar(roll: Rollup) -> Bar | None:
    """How far it is; none for what has not begun or never will."""
    if roll.state in (OperationState.QUEUED, OperationState.CANCELLED):
        return None
    percent = int(roll.percentage)
    return Bar(
        name=f"Progress of {roll.verb} {roll.backend}",
        text=f"{percent} %",
        percent=percent,
        tone=words.TONES.get(roll.state, "good"),
        title=f"{percent} %, {words.nodes(roll) or 'one node'}",
    )


def amounts(roll: Rollup) -> str:
    if roll.state != OperationState.RUNNING:
        return ""
    figures = words.amounts(
        current=roll.current_bytes, total=roll.total_bytes, rate=roll.rate, eta=roll.eta
    )
    return " · ".join(filter(None, [figures, words.silence(roll)]))


def cell(name: str, line: Line, *, oob: bool = False) -> SafeString:
    return format_html(
        '<div id="o-{}-{}" class="cm-cell"{}>{}</div>',
        line.operation.pk,
        name,
        SafeString(' hx-swap-oob="true"' if oob else ""),
        render_to_string(f"console/operations/_{name}.html", {"line": line}),
    )
