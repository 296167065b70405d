"""One node's share of an order, in words: where it stands, what it waits for, what can be done."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from django.template.loader import render_to_string
from django.utils.html import format_html
from django.utils.safestring import SafeString

from backendops import progress
from backendops.models import PendingBackendOp
from backendops.presenting import buttons, words
from backendops.services.summaries import reading, silence
from backendops.states import ATTENTION, OpState
from nodes.presenting.displays import Bar
from nodes.states import NodeStatus

LIVE = ("state", "progress", "detail", "verbs")
WILL_FINISH = "If it cannot be stopped, the node will finish; its result will be recorded."
SILENT = "No answer yet; the node may still be at it."
NO_BAR = (OpState.QUEUED, OpState.CANCELLED, OpState.SUPERSEDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One op, ready for a template."""

    op: PendingBackendOp
    bar: Bar | None
    doing: str
    amounts: str
    notes: list[str]
    error: str
    buttons: list[buttons.Button]


def shares(
    ops: Iterable[PendingBackendOp], *, may: Callable[[str], bool], now: datetime
) -> list[Share]:
    """Each op with its node at hand; no query."""
    return [share(op, may=may, now=now) for op in ops]


def share(op: PendingBackendOp, *, may: Callable[[str], bool], now: datetime) -> Share:
    at = reading(op, now=now)
    running = op.state == OpState.RUNNING
    figures = words.amounts(
        current=op.current_bytes,
        total=op.total_bytes,
        rate=at.rate if running else 0.0,
        eta=progress.eta(at),
    )
    return Share(
        op=op,
        bar=None if op.state in NO_BAR else _bar(op, int(progress.percentage_of(at))),
        doing=_doing(op),
        amounts=figures if running or op.state == OpState.UNCONFIRMED else "",
        notes=[text for text in _notes(op, now=now) if text],
        error=op.last_error if op.state in ATTENTION else "",
        buttons=[one for one in buttons.of_op(op) if may(one.verb)],
    )


def _bar(op: PendingBackendOp, percent: int) -> Bar:
    return Bar(
        name=f"Progress on {op.node.name}",
        text=f"{percent} %",
        percent=percent,
        tone=words.TONES.get(op.state, "good"),
        title=f"{op.node.name}: {percent} %",
    )


def _doing(op: PendingBackendOp) -> str:
    if op.state != OpState.RUNNING:
        return ""
    if op.sent_at is not None and op.progress_at is None:
        return "no progress reported"
    return " ".join(filter(None, [op.phase, op.file_name]))


def _notes(op: PendingBackendOp, *, now: datetime) -> list[str]:
    match op.state:
        case OpState.QUEUED:
            return [op.note, _waiting(op, now=now)]
        case OpState.UNCONFIRMED:
            return [op.note or SILENT, _when("Next check", op.due_at)]
        case OpState.CANCELLING:
            known = "will finish" in op.note
            return [op.note, "" if known else WILL_FINISH, _when("Next check", op.due_at)]
        case OpState.FAILED:
            return [op.note, _tries(op), _when("Next try", op.due_at), _waiting(op, now=now)]
        case OpState.DEAD:
            return [op.note, f"{_tries(op)} It is not tried again by itself."]
        case OpState.SUCCEEDED:
            return [_installed(op), op.note]
        case OpState.RUNNING:
            return [op.note, _silence(op, now=now)]
    return [op.note]


def _installed(op: PendingBackendOp) -> str:
    """What the node has now, and what it had before if that was another."""
    was, now = words.build(op.before), words.build(op.after)
    if not now:
        return ""
    return f"{was} → {now}" if was and was != now else f"Version {now}"


def _waiting(op: PendingBackendOp, *, now: datetime) -> str:
    """Why nothing happens yet, if it is the node."""
    node = op.node
    since = words.lasting(now - node.liveness_changed_at)
    match node.status:
        case NodeStatus.OFFLINE | NodeStatus.UNHEALTHY:
            return f"Waiting for {node.name}, {node.status} {since}."
        case NodeStatus.PENDING:
            return f"Waiting for {node.name} to be approved."
    return ""


def _silence(op: PendingBackendOp, *, now: datetime) -> str:
    lasts = silence(op, now=now)
    return f"Nothing heard for {words.lasting(lasts)}." if lasts else ""


def _tries(op: PendingBackendOp) -> str:
    return f"Tried {op.attempts} time{'' if op.attempts == 1 else 's'}."


def _when(what: str, at: datetime | None) -> str:
    return f"{what} at {words.moment(at)}." if at else ""


def cell(name: str, share: Share, *, oob: bool = False) -> SafeString:
    return format_html(
        '<div id="s-{}-{}" class="cm-cell"{}>{}</div>',
        share.op.pk,
        name,
        SafeString(' hx-swap-oob="true"' if oob else ""),
        render_to_string(f"console/operations/_share_{name}.html", {"share": share}),
    )
