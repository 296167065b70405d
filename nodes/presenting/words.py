"""A node's facts in sentences: who decided what, when and why."""

from dataclasses import dataclass
from datetime import datetime

from django.template.loader import render_to_string
from django.utils.html import format_html
from django.utils.safestring import SafeString

from nodes.models import BackendNode
from nodes.presenting.displays import ago
from nodes.services import credentials
from nodes.states import Liveness


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    title: str
    text: str
    tone: str = "idle"


def cell(node: BackendNode, *, now: datetime, oob: bool = False) -> SafeString:
    return format_html(
        '<div id="n-{}-facts"{}>{}</div>',
        node.pk,
        SafeString(' hx-swap-oob="true"' if oob else ""),
        render_to_string("console/nodes/_facts.html", {"facts": facts(node, now=now)}),
    )


def in_words(kind: str) -> str:
    """node.went_offline -> Node went offline"""
    return kind.replace(".", " ").replace("_", " ").capitalize()


def facts(node: BackendNode, *, now: datetime) -> list[Fact]:
    """What stands, strongest first; what does not apply is not mentioned."""
    told = [
        _retirement(node),
        _approval(node),
        _liveness(node, now),
        _drain(node, now),
        _cordon(node),
        _quarantine(node),
        _bus(node, now),
    ]
    return [fact for fact in told if fact is not None]


def _retirement(node: BackendNode) -> Fact | None:
    if node.retired_at is None:
        return None
    text = f"Sent away by {node.retired_by} on {_date(node.retired_at)}{_why(node.retire_reason)}."
    return Fact(title="Retired", text=text, tone="idle")


def _approval(node: BackendNode) -> Fact:
    if node.approved_at is None:
        text = "Nobody has let it in yet: it gets no work."
        return Fact(title="Waiting for approval", text=text, tone="warn")
    text = f"By {node.approved_by} on {_date(node.approved_at)}."
    return Fact(title="Approved", text=text, tone="good")


def _liveness(node: BackendNode, now: datetime) -> Fact:
    beat = f"Last heartbeat {ago(node.last_heartbeat, now=now)}."
    if node.left_at is not None:
        text = f"Its worker stopped on {_date(node.left_at)} and must register again."
        return Fact(title="Left by itself", text=text, tone="bad")
    reason = f" {node.liveness_reason}" if node.liveness_reason else ""
    since = f"Since {_date(node.liveness_changed_at)}.{reason} {beat}"
    match node.liveness:
        case Liveness.OFFLINE:
            return Fact(title="Offline", text=since, tone="bad")
        case Liveness.UNHEALTHY:
            return Fact(title="Unhealthy", text=since, tone="warn")
    return Fact(title="Alive", text=beat, tone="good")


def _drain(node: BackendNode, now: datetime) -> Fact | None:
    if node.drain_requested_at is None:
        return None
    who = f"Ordered by {node.drain_requested_by} {ago(node.drain_requested_at, now=now)}"
    who += f"{_why(node.drain_reason)}."
    if node.drained_at is not None:
        text = f"{who} Empty since {_date(node.drained_at)}. {_stopping(node)}"
        return Fact(title="Drained", text=text.strip(), tone="blue")
    text = f"{who} {_running(node)} {_until(node)} {_stopping(node)}"
    return Fact(title="Draining", text=text.strip(), tone="blue")


def _stopping(node: BackendNode) -> str:
    if node.stop_ordered_at is None:
        return ""
    if node.stop_told_at is None:
        return "Then its worker is told to exit."
    return f"Its worker was told to exit on {_date(node.stop_told_at)}."


def _running(node: BackendNode) -> str:
    count = getattr(node, "in_flight_count", 0)
    if not count:
        return "No request is running."
    return f"{count} request{'s are' if count > 1 else ' is'} still running."


def _until(node: BackendNode) -> str:
    if node.drain_deadline is None:
        return "No deadline: it waits for the last one."
    return f"Cut off at {node.drain_deadline:%H:%M} UTC on {node.drain_deadline:%Y-%m-%d}."


def _cordon(node: BackendNode) -> Fact | None:
    if node.cordoned_at is None:
        return None
    text = f"By {node.cordoned_by} on {_date(node.cordoned_at)}{_why(node.cordon_reason)}."
    return Fact(title="Cordoned", text=f"{text} It gets nothing new.", tone="warn")


def _quarantine(node: BackendNode) -> Fact | None:
    if node.quarantined_until is None:
        return None
    text = f"{node.quarantine_reason} It gets nothing new until {_date(node.quarantined_until)}."
    return Fact(title="Quarantined", text=text, tone="warn")


def _bus(node: BackendNode, now: datetime) -> Fact | None:
    if not credentials.minting():
        return None
    standing = credentials.standing(node, now=now)
    if standing.still_open:
        text = "Its revoked credentials still open the bus: NATS does not know yet."
        return Fact(title="Not cut off", text=f"{text} {standing.trouble}".strip(), tone="bad")
    if standing.expires_at is None:
        text = "It cannot use the bus until its worker registers."
        return Fact(title="No credentials for the bus", text=text, tone="idle")
    many = f"{standing.live}, the last" if standing.live > 1 else "One,"
    text = f"{many} good until {_date(standing.expires_at)}."
    return Fact(title="Credentials for the bus", text=text, tone="good")


def _why(reason: str) -> str:
    return f": {reason.removesuffix('.')}" if reason else ""


def _date(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
