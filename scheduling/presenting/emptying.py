"""A drain in words: what still stands, why, and when it ends at the latest."""

from dataclasses import dataclass
from datetime import datetime

from django.contrib.admin.utils import quote

from nodes.models import BackendNode, NodeModel
from nodes.presenting.displays import Bar
from nodes.states import ReplicaState
from scheduling.presenting.words import job_line, lasting
from scheduling.services.emptying import Remaining


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    replica: NodeModel
    quoted: str  # its model, as the admin's addresses have it
    why: str
    bar: Bar | None = None
    stuck: bool = False  # nothing is on its way that would end it


def lines(found: list[Remaining], *, node: BackendNode, now: datetime) -> list[Line]:
    return [_line(one, node=node, now=now) for one in found]


def headline(found: list[Remaining], *, node: BackendNode, now: datetime) -> str:
    """How much is left, and until when."""
    if node.drained_at is not None and not found:
        return "Nothing stands here any more."
    requests = sum(one.replica.in_flight for one in found)
    left = f"{_many(len(found), 'replica')} left, {_many(requests, 'request')} in flight."
    return f"{left} {_deadline(node, now=now)}"


def _line(one: Remaining, *, node: BackendNode, now: datetime) -> Line:
    job = one.replacement
    return Line(
        replica=one.replica,
        quoted=quote(one.replica.model_name),
        why=_why(one, node=node),
        bar=job_line(job, now=now).bar if job else None,
        stuck=one.needed and job is None,
    )


def _why(one: Remaining, *, node: BackendNode) -> str:
    row = one.replica
    if row.state == ReplicaState.UNLOADING:
        failed = f" The last try failed: {row.cleanup_error}" if row.cleanup_error else ""
        return f"Its process is being stopped.{failed}"
    if row.state != ReplicaState.LOADED:
        return "It still comes up here; it goes when that is over."
    running = f"{_many(row.in_flight, 'request')} in flight" if row.in_flight else ""
    if one.needed:
        return f"{_replacement(one)}{f' {running}.' if running else ''}"
    if running:
        return f"No new requests; {running}."
    return "Ends with its worker." if node.drain_by_worker else "Idle: it is stopped next."


def _replacement(one: Remaining) -> str:
    if one.replacement is not None:
        job = one.replacement
        return f"Serves until its replacement on {job.node.name} is ready: {job.state}."
    return f"Serves until a replacement is ready. {one.obstacle or 'None is on its way yet.'}"


def _deadline(node: BackendNode, *, now: datetime) -> str:
    end = node.drain_deadline
    if end is None:
        return "No deadline: it waits for the last one."
    if end <= now:
        return f"The deadline passed at {end:%H:%M} UTC: what is left is cut off."
    return f"What is left in {lasting(end - now)} ({end:%H:%M} UTC) is cut off."


def _many(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"
