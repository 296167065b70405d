"""Orders in words. A removal is never called an install, nor a cancelled one a success."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from backendops.services.queueing import Place
from backendops.services.rollups import Rollup
from backendops.states import OperationState, OpState, Verb

DOING = {
    Verb.INSTALL: "Installing",
    Verb.UPGRADE: "Upgrading",
    Verb.REINSTALL: "Reinstalling",
    Verb.DELETE: "Deleting",
    Verb.STOP: "Stopping",
}
DONE = {
    Verb.INSTALL: "Installed",
    Verb.UPGRADE: "Upgraded",
    Verb.REINSTALL: "Reinstalled",
    Verb.DELETE: "Deleted",
    Verb.STOP: "Stopped",
}
NOUN = {
    Verb.INSTALL: "Install",
    Verb.UPGRADE: "Upgrade",
    Verb.REINSTALL: "Reinstall",
    Verb.DELETE: "Removal",
    Verb.STOP: "Stop",
}
HEADLINES = {
    OperationState.QUEUED: "{noun} waits",
    OperationState.RUNNING: "{doing}",
    OperationState.UNCONFIRMED: "{noun} is not confirmed yet",
    OperationState.CANCELLING: "Cancelling {small_noun}",
    OperationState.SUCCEEDED: "{done}",
    OperationState.PARTIAL: "{noun} failed on {failed} of {all}",
    OperationState.PARTLY_CANCELLED: "{done}, but cancelled on {cancelled}",
    OperationState.FAILED: "{noun} failed",
    OperationState.CANCELLED: "{noun} was cancelled",
}
# What a bar is coloured by; "good" is the plain blue of something that moves
TONES: dict[str, str] = {
    OperationState.SUCCEEDED: "done",
    OperationState.PARTIAL: "bad",
    OperationState.FAILED: "bad",
    OperationState.UNCONFIRMED: "warn",
    OperationState.CANCELLING: "warn",
    OperationState.CANCELLED: "idle",
    OperationState.PARTLY_CANCELLED: "idle",
    OpState.DEAD: "bad",
    OpState.SUPERSEDED: "idle",
}
ORDINALS = {1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth"}
KIB = 1024
SHORT = 12  # characters of a digest that people compare


def headline(roll: Rollup) -> str:
    """What is going on, or how it ended, in a few words."""
    verb = Verb(roll.verb)
    noun = f"{NOUN[verb]} of {roll.backend}"
    return HEADLINES[roll.state].format(
        noun=noun,
        small_noun=f"{noun[0].lower()}{noun[1:]}",
        doing=f"{DOING[verb]} {roll.backend}",
        done=f"{DONE[verb]} {roll.backend}",
        cancelled=_nodes(roll.cancelled),
        failed=roll.failed,
        all=_nodes(roll.total),
    )


def label(roll: Rollup) -> str:
    """The state as a pill says it."""
    if roll.state == OperationState.PARTLY_CANCELLED:
        return f"succeeded, {roll.cancelled} cancelled"
    return roll.state.value


def build(evidence: Mapping[str, Any]) -> str:
    """What tells one installation from another: its version, else a piece of its digest."""
    return str(evidence.get("version") or short(str(evidence.get("digest") or "")))


def short(digest: str) -> str:
    return digest.removeprefix("sha256:")[:SHORT]


def _nodes(count: int) -> str:
    return f"{count} node{'' if count == 1 else 's'}"


def nodes(roll: Rollup) -> str:
    """How many of its nodes are done; the bad ones by their number."""
    if roll.total == 1:
        return ""
    bad = f", {roll.failed} failed" if roll.failed else ""
    return f"{roll.done} of {roll.total} nodes{bad}"


def place(where: Place | None) -> str:
    if where is None:
        return ""
    nth = ORDINALS.get(where.position, f"number {where.position}")
    return f"{nth} in line, behind {where.behind}" if where.behind else "next in line"


def amount(count: float) -> str:
    """Bytes for people: 412 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < KIB:
            return _short(count, unit)
        count /= KIB
    return _short(count, "TB")


def _short(count: float, unit: str) -> str:
    number = f"{count:.1f}".removesuffix(".0") if count < 10 else f"{count:.0f}"
    return f"{number} {unit}"


def lasting(span: timedelta) -> str:
    """A duration in its largest unit; never negative."""
    seconds = max(int(span.total_seconds()), 0)
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= size * (2 if unit == "days" else 1):
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def amounts(*, current: int, total: int, rate: float, eta: timedelta | None) -> str:
    """What is known about a download; nothing is guessed."""
    parts = []
    if total:
        parts.append(f"{amount(current)} of {amount(total)}")
    elif current:
        parts.append(amount(current))
    if rate > 0:
        parts.append(f"{amount(rate)}/s")
    if eta is not None and eta >= timedelta(seconds=1):  # "0 s left" is wrong as often as not
        parts.append(f"{lasting(eta)} left")
    return " · ".join(parts)


def silence(roll: Rollup) -> str:
    """What is not heard any more; empty while it is no news."""
    if roll.silence is not None:
        return f"nothing heard for {lasting(roll.silence)}"
    if roll.silent:
        return f"nothing heard from {roll.silent} node{'' if roll.silent == 1 else 's'}"
    return ""


def moment(at: datetime) -> str:
    return f"{at:%H:%M:%S} UTC"
