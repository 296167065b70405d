"""Orders in words. A removal is never called an install, nor a cancelled one a success."""

from datetime import datetime, timedelta

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
# What a bar is coloured by; "good" is the plain blue of something that moves
TONES: dict[str, str] = {
    OperationState.SUCCEEDED: "done",
    OperationState.PARTIAL: "bad",
    OperationState.FAILED: "bad",
    OperationState.UNCONFIRMED: "warn",
    OperationState.CANCELLING: "warn",
    OperationState.CANCELLED: "idle",
    OpState.DEAD: "bad",
    OpState.SUPERSEDED: "idle",
}
ORDINALS = {1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth"}
KIB = 1024


def headline(roll: Rollup) -> str:
    """What is going on, or how it ended, in a few words."""
    verb, backend = Verb(roll.verb), roll.backend
    noun = f"{NOUN[verb]} of {backend}"
    match roll.state:
        case OperationState.QUEUED:
            return f"{noun} waits"
        case OperationState.RUNNING:
            return f"{DOING[verb]} {backend}"
        case OperationState.UNCONFIRMED:
            return f"{noun} is not confirmed yet"
        case OperationState.CANCELLING:
            return f"Cancelling {noun[0].lower()}{noun[1:]}"
        case OperationState.SUCCEEDED:
            return f"{DONE[verb]} {backend}"
        case OperationState.CANCELLED:
            return f"{noun} was cancelled"
    return f"{noun} failed" if roll.failed else f"{noun} ended on some nodes only"


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
