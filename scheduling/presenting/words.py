"""Where a model stands, in words."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from nodes.presenting.displays import Bar, ago
from scheduling.models import LoadJob, ModelSchedulingConfig
from scheduling.services import jobprogress
from scheduling.services.standing import Standing
from scheduling.states import JobState

KIB = 1024
MODES = {
    "pin": "Pin: where it may run; it is loaded when asked for",
    "scale": "Auto-scale: between a minimum and a maximum",
    "spread": "Spread: one on every matching node",
}
CAUSES = {
    "floor": "fewer than the minimum",
    "spread": "one on every node",
    "burst": "all were busy",
    "pressure": "those with warm caches were too busy",
    "replace": "the model was edited",
    "drain": "its node is emptied",
    "request": "a request came",
    "operator": "an operator",
    "idle": "unused for a while",
    "ceiling": "more than the maximum",
    "evicted": "makes room",
}
TONES: dict[str, str] = {JobState.LOADED: "done", JobState.FAILED: "bad"}


def mode(rule: ModelSchedulingConfig) -> str:
    if rule.spread_all:
        return "spread"
    return "scale" if rule.min_replicas or rule.max_replicas else "pin"


def wish(rule: ModelSchedulingConfig | None, *, desired: int) -> str:
    """What is asked for, in a few words."""
    if rule is None:
        return "no rule"
    if rule.spread_all:
        return f"one on each of {desired} node{'' if desired == 1 else 's'}"
    if not rule.managed:
        return "on request"
    if not rule.max_replicas:
        return f"at least {rule.min_replicas}"
    if rule.min_replicas == rule.max_replicas:
        return f"exactly {rule.min_replicas}"
    return f"{rule.min_replicas} to {rule.max_replicas}"


def matching(count: int) -> str:
    return "1 node matches" if count == 1 else f"{count} nodes match"


def state(standing: Standing) -> str:
    """One word, worst first; each has a colour."""
    if standing.starved:
        return "starved"
    if standing.outdated:
        return "outdated"
    if standing.loading:
        return "loading"
    if standing.unloading and not standing.actual:
        return "unloading"
    if standing.actual:
        return "running"
    return "failed" if standing.failing else "idle"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLine:
    """One load, ready for a template."""

    job: LoadJob
    bar: Bar | None
    detail: str
    age: str
    cause: str


def job_line(job: LoadJob, *, now: datetime) -> JobLine:
    percent = int(jobprogress.percentage(job))
    active = job.finished_at is None
    measured = job.state in (JobState.INSTALLING, JobState.STAGING)
    bar = Bar(
        name=f"Progress of loading {job.model_name}",
        text=f"{percent} %",
        percent=percent,
        tone=TONES.get(job.state, "good"),
        title=f"{job.phase or job.state}: {percent} %",
    )
    return JobLine(
        job=job,
        bar=bar if active and (measured or percent) else None,
        detail=_detail(job, now=now) if active else _took(job),
        age=ago(job.finished_at or job.created_at, now=now),
        cause=CAUSES.get(job.cause, job.cause),
    )


def _detail(job: LoadJob, *, now: datetime) -> str:
    parts = [job.phase] if job.phase and job.phase != job.state else []
    if job.total_bytes:
        parts.append(f"{amount(job.current_bytes)} of {amount(job.total_bytes)}")
    left = jobprogress.eta(job)
    if left is not None:
        parts.append(f"{lasting(left)} left")
    if job.state == JobState.LOADING:  # a backend does not tell how far it is
        parts.append(f"for {lasting(now - job.changed_at)}")
    return " · ".join(parts)


def _took(job: LoadJob) -> str:
    if job.started_at is None or job.finished_at is None:
        return ""
    took = f"took {lasting(job.finished_at - job.started_at)}"
    if job.died_at is None:
        return took
    return f"{took} · died after {lasting(job.died_at - job.finished_at)}"


def amount(count: float) -> str:
    """Bytes for people, in the units they are counted in: 4.1 GiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < KIB:
            return f"{count:.1f}".removesuffix(".0") + f" {unit}"
        count /= KIB
    return f"{count:.1f}".removesuffix(".0") + " TiB"


def lasting(span: timedelta) -> str:
    seconds = max(int(span.total_seconds()), 0)
    if seconds < 60:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 3600 else f"{seconds // 3600} h"


def coming(moment: datetime, *, now: datetime) -> str:
    """When something is tried again."""
    return f"in {lasting(moment - now)}" if moment > now else "now"
