"""One replica now, because a request or an operator asks for it."""

from dataclasses import dataclass
from datetime import datetime
from math import ceil

from django.conf import settings
from django.db import transaction

from clustermgr.lib.errors import Conflict, DomainError, InvalidInput, NotFound
from clustermgr.lib.locks import LockKey, wait_lock
from nodes.models import BackendNode, NodeModel
from scheduling import snapshot
from scheduling.models import LoadJob, ModelLoadInfo
from scheduling.planning import asked, deciding
from scheduling.planning.asked import Outcome, Refusal
from scheduling.services import intents, routeterms
from scheduling.services.reconciling import knobs
from scheduling.states import Cause


class NoCapacity(DomainError):
    """No node can take another replica; the sentence names the smallest change that helps."""

    code = "no_capacity"
    http_status = 503
    retry_after = 30  # a tick may have found room by then


class MakingRoom(DomainError):
    """Others are being unloaded for it; the same request succeeds in a moment."""

    code = "making_room"
    http_status = 503


class AlreadyServing(DomainError):
    """A replica is there: the load that the request was about to begin is done."""

    code = "already_serving"


class ModelFailing(DomainError):
    """Its last loads failed, and it is too early for another try."""

    code = "model_failing"
    http_status = 503


REFUSALS: dict[Refusal, type[DomainError]] = {
    Refusal.FULL: NoCapacity,
    Refusal.ROOM: MakingRoom,
    Refusal.FAILING: ModelFailing,
    Refusal.LIMIT: Conflict,
    Refusal.UNREADABLE: InvalidInput,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What somebody wants."""

    cause: Cause
    node: BackendNode | None  # None: wherever it fits best
    replaces: NodeModel | None  # what goes when the new one has come


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    job: LoadJob | None = None
    refusal: DomainError | None = None


def place(
    model_name: str,
    *,
    cause: Cause,
    by: str,
    now: datetime,
    node: BackendNode | None = None,
    replaces: NodeModel | None = None,
) -> LoadJob:
    """Open the job for one more replica; a request joins a load that is under way.

    A refusal is raised after the transaction: making room for the next try has been written.
    """
    running = _joined(model_name, cause)
    if running is not None:
        return running
    want = _Asked(cause=cause, node=node, replaces=replaces)
    result = _decide(model_name, want, by=by, now=now)
    if result.job is None:
        raise result.refusal or NoCapacity(f"{model_name} fits nowhere.")
    return result.job


def foresee(model_name: str, *, now: datetime) -> tuple[LoadJob | None, str]:
    """What `place` would do for a request: the load it would join, or a sentence. Only reads."""
    running = _joined(model_name, Cause.REQUEST)
    if running is not None:
        return running, ""
    draft = deciding.begin(snapshot.take(now=now), now=now, knobs=knobs(settings.CLUSTER))
    standing = draft.standings.get(model_name)
    if standing is None or not standing.model.defined:
        raise NotFound(f"Nobody has defined how {model_name} is loaded.")
    outcome = asked.one_more(draft, standing, cause=Cause.REQUEST)
    where = [one.node_name for one in draft.place]
    return None, outcome.sentence or f"A request would have it loaded on {where[0]}, and wait."


@transaction.atomic
def _decide(model_name: str, want: _Asked, *, by: str, now: datetime) -> _Result:
    # Waits, unlike a tick: a slot is decided on once, and a tick is over in a moment
    wait_lock(LockKey.RECONCILE)
    running = _joined(model_name, want.cause)
    if running is not None:
        return _Result(job=running)
    if want.cause == Cause.REQUEST and _serves(model_name):
        return _Result(refusal=AlreadyServing(f"{model_name} is loaded."))
    draft = deciding.begin(snapshot.take(now=now), now=now, knobs=knobs(settings.CLUSTER))
    standing = draft.standings.get(model_name)
    if standing is None or not standing.model.defined:
        return _Result(refusal=NotFound(f"Nobody has defined how {model_name} is loaded."))
    outcome = asked.one_more(
        draft,
        standing,
        cause=want.cause,
        node=want.node.pk if want.node else None,
        replaces=want.replaces.pk if want.replaces else None,
    )
    jobs = intents.load(draft.place, by=by, now=now)
    intents.let_go(draft.unload, by=by, now=now)
    job = LoadJob.objects.get(pk=jobs[0]) if jobs else None
    refusal = _refusal(outcome)
    if outcome.kind == Refusal.FAILING and refusal and standing.model.retry_at:
        refusal.retry_after = max(ceil((standing.model.retry_at - now).total_seconds()), 1)
    return _Result(job=job, refusal=refusal)


def _joined(model_name: str, cause: Cause) -> LoadJob | None:
    """The load that a request may wait for: of the revision that is current."""
    if cause != Cause.REQUEST:
        return None
    revision = ModelLoadInfo.objects.filter(pk=model_name).values("config_revision")
    jobs = LoadJob.objects.active().filter(model_name=model_name, config_revision=revision[:1])
    return jobs.order_by("id").first()


def _serves(model_name: str) -> bool:
    """Looked at after the jobs: a load that ended in between shows here.

    What a request may not be sent to does not serve it, however long it runs on.
    """
    able = NodeModel.objects.all().serving().filter(model_name=model_name)
    return able.exclude(node__in=routeterms.barred(model_name)).exists()


def _refusal(outcome: Outcome) -> DomainError | None:
    return REFUSALS[outcome.kind](outcome.sentence) if outcome.kind else None
