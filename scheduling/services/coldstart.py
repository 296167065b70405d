"""A request for a model of which nothing runs: the load it waits for, or why there is none."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil
from typing import Any

from clustermgr.lib.errors import Conflict, DomainError, NotFound
from scheduling.models import LoadJob, ModelLoadInfo
from scheduling.services import jobprogress, placing
from scheduling.services.placing import AlreadyServing, MakingRoom
from scheduling.states import Cause

SOONEST, LATEST = 5, 300  # seconds, for Retry-After: LocalAI's bounds
REMEMBERED = timedelta(seconds=0.7)  # so late a model that was refused is seen to fit after all
MOST_REMEMBERED = 1000


class StaleRevision(Conflict):
    """The caller knows another configuration of the model than the current one."""

    code = "stale_revision"


class ModelLoading(DomainError):
    """It is being loaded, and the caller would not wait longer. The load goes on."""

    code = "model_loading"
    http_status = 503


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What a request waits for: a load, or room for one."""

    job: LoadJob | None = None
    sentence: str = ""

    def given_up(self, model: str, *, waited: timedelta) -> ModelLoading:
        """What to tell a caller whose patience is over."""
        left = jobprogress.eta(self.job) if self.job else None
        refusal = ModelLoading(self.sentence or f"{model} is still being loaded.")
        wanted = (left or waited).total_seconds()
        refusal.retry_after = min(max(ceil(wanted), SOONEST), LATEST)
        refusal.told = {"loading": status(self.job)} if self.job else {}
        return refusal


@dataclass(frozen=True, slots=True)
class _Told:
    said: Outlook | DomainError
    at: datetime


class Wants:
    """One per process; every thread may use it.

    A plan looks at the whole cluster. Who asks again at once for what fits nowhere is told the
    same for a moment: a few such models must not keep everybody else's plans waiting.
    """

    def __init__(self) -> None:
        self._told: dict[tuple[str, str], _Told] = {}

    def want(self, model: str, *, revision: str, by: str, now: datetime) -> Outlook:
        """As the function; a plan that began no load is not made again within REMEMBERED."""
        current = check(model, revision=revision)
        known = self._told.get((model, current))
        if known is None or not known.at <= now < known.at + REMEMBERED:
            said = _tried(model, by=by, now=now)
            if isinstance(said, Outlook) and said.job:
                return said
            if len(self._told) >= MOST_REMEMBERED:
                self._told.clear()
            known = self._told[model, current] = _Told(said, now)
        return _heard(known.said)


def want(model: str, *, revision: str, by: str, now: datetime) -> Outlook:
    """Join or begin the load that will serve a request; raises what makes waiting pointless."""
    check(model, revision=revision)
    return _heard(_tried(model, by=by, now=now))


def check(model: str, *, revision: str) -> str:
    """The current revision; refuse a model nobody defined, and a caller that knows another."""
    found = ModelLoadInfo.objects.filter(pk=model)
    current: str | None = found.values_list("config_revision", flat=True).first()
    if current is None:
        raise NotFound(f"Nobody has defined how {model} is loaded.")
    if revision and revision != current:
        raise StaleRevision(f"{model} was edited: its revision is {current}, not {revision}.")
    return current


def _tried(model: str, *, by: str, now: datetime) -> Outlook | DomainError:
    try:
        return Outlook(job=placing.place(model, cause=Cause.REQUEST, by=by, now=now))
    except (AlreadyServing, MakingRoom) as soon:
        return Outlook(sentence=str(soon))
    except DomainError as refusal:
        return refusal


def _heard(said: Outlook | DomainError) -> Outlook:
    if isinstance(said, DomainError):
        raise said.with_traceback(None)  # it would grow with everybody who is told
    return said


def status(job: LoadJob) -> dict[str, Any]:
    """LocalAI's keys; its eta is left out where it would be a guess."""
    told: dict[str, Any] = {
        "model": job.model_name,
        "state": job.state,
        "node": job.node.name,
        "progress": jobprogress.percentage(job),
        "bytes_sent": job.current_bytes,
        "total_bytes": job.total_bytes,
        "file_index": 0,
        "total_files": 0,
    }
    left = jobprogress.eta(job)
    if left is not None:
        told["eta_seconds"] = int(left.total_seconds()) + 1
    return told
