"""Writes a plan down: slots, jobs and decisions in a few statements, doorbells after commit.

The caller holds the lock and the transaction. Nothing here asks a node.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from clustermgr.lib.queue import after_commit
from nodes.models import ClusterEvent, NodeModel
from nodes.services import events
from nodes.states import ReplicaState
from scheduling.models import LoadJob, ModelLoadInfo, PlacementDecision
from scheduling.planning.plans import Place, Unload
from scheduling.services import reserving
from scheduling.states import JobState

Definitions = Mapping[str, ModelLoadInfo]


def load(places: Sequence[Place], *, by: str, now: datetime) -> list[LoadJob]:
    """Take each slot and open its job. A slot that somebody has meanwhile is passed over."""
    if not places:
        return []
    definitions = ModelLoadInfo.objects.in_bulk({place.model for place in places})
    current = [one for one in places if _is_current(one, definitions)]
    rows = [(place, _replica(place, definitions, now=now)) for place in current]
    NodeModel.objects.bulk_create([row for _, row in rows], ignore_conflicts=True)
    ours = _written([row for _, row in rows])
    made = [(place, row) for place, row in rows if row.pk in ours]
    jobs = LoadJob.objects.bulk_create(
        _job(place, row, definitions, by=by, now=now) for place, row in made
    )
    reserving.add(jobs)
    decided = list(zip((place for place, _ in made), jobs, strict=True))
    PlacementDecision.objects.bulk_create(_decision(*pair, now=now) for pair in decided)
    events.record_all(_loading(*pair, by=by, now=now) for pair in decided)
    for job in jobs:
        after_commit("scheduling.run_job", job.pk)
    return list(jobs)


def unload(leavers: Sequence[Unload], *, by: str, now: datetime) -> list[Unload]:
    """Begin to stop those that still serve nobody. Who got a request meanwhile stays."""
    if not leavers:
        return []
    resting = NodeModel.objects.filter(
        pk__in=[one.replica for one in leavers], state=ReplicaState.LOADED, in_flight=0
    )
    held = resting.order_by("pk").select_for_update(no_key=True, skip_locked=True)
    ids = set(held.values_list("pk", flat=True))
    NodeModel.objects.filter(pk__in=ids).update(state=ReplicaState.UNLOADING, updated_at=now)
    gone = [one for one in leavers if one.replica in ids]
    PlacementDecision.objects.bulk_create(_gap(one, now=now) for one in gone if one.gap)
    events.record_all(_unloading(one, by=by, now=now) for one in gone)
    for one in gone:
        after_commit("scheduling.stop_replica", str(one.replica))
    return gone


def retire(leavers: Sequence[Unload], *, by: str, now: datetime) -> None:
    """Send nothing new to these; the next ticks stop them once they are idle."""
    if not leavers:
        return
    loaded = NodeModel.objects.filter(
        pk__in=[one.replica for one in leavers], state=ReplicaState.LOADED, outdated_at=None
    )
    held = loaded.order_by("pk").select_for_update(no_key=True, skip_locked=True)
    ids = set(held.values_list("pk", flat=True))
    NodeModel.objects.filter(pk__in=ids).update(outdated_at=now, updated_at=now)
    gone = [one for one in leavers if one.replica in ids]
    PlacementDecision.objects.bulk_create(_gap(one, now=now) for one in gone if one.gap)
    events.record_all(_retiring(one, by=by, now=now) for one in gone)


def _is_current(place: Place, definitions: Definitions) -> bool:
    """An edit that came between look and write makes the decision void; the next tick has it."""
    definition = definitions.get(place.model)
    return definition is not None and definition.config_revision == place.revision


def _written(rows: Iterable[NodeModel]) -> set[UUID]:
    found = NodeModel.objects.filter(pk__in=[row.pk for row in rows])
    return set(found.values_list("pk", flat=True))


def _replica(place: Place, definitions: Definitions, *, now: datetime) -> NodeModel:
    return NodeModel(
        id=uuid4(),
        node_id=place.node,
        model_name=place.model,
        replica_index=place.index,
        state=ReplicaState.STAGING,
        backend_type=definitions[place.model].backend,
        config_revision=place.revision,
        created_at=now,
        updated_at=now,
    )


def _job(
    place: Place, row: NodeModel, definitions: Definitions, *, by: str, now: datetime
) -> LoadJob:
    definition = definitions[place.model]
    return LoadJob(
        model_name=place.model,
        config_revision=place.revision,
        backend=definition.backend,
        options=definition.options,
        node_id=place.node,
        replica_index=place.index,
        replica=row,
        cause=place.cause,
        requested_by=by,
        state=JobState.PENDING,
        created_at=now,
        changed_at=now,
        due_at=now,
        reserved_vram=place.vram,
        replaces_id=place.replaces,
    )


def _decision(place: Place, job: LoadJob, *, now: datetime) -> PlacementDecision:
    return PlacementDecision(
        at=now,
        model_name=place.model,
        config_revision=place.revision,
        cause=place.cause,
        node_id=place.node,
        replica_index=place.index,
        job=job,
        summary=place.summary,
        verdicts=[verdict.as_json() for verdict in place.verdicts],
    )


def _gap(one: Unload, *, now: datetime) -> PlacementDecision:
    return PlacementDecision(
        at=now,
        model_name=one.model,
        cause=one.cause,
        node_id=one.node,
        replica_index=one.index,
        summary=one.reason,
    )


def _loading(place: Place, job: LoadJob, *, by: str, now: datetime) -> ClusterEvent:
    event = events.build(
        "replica.load_decided",
        actor=by,
        now=now,
        subject=f"{place.model}#{place.index} on {place.node_name}",
        reason=place.summary,
        after={"cause": place.cause, "job": job.pk},
    )
    event.node_id = place.node
    return event


def _unloading(one: Unload, *, by: str, now: datetime) -> ClusterEvent:
    states = {"before": {"state": ReplicaState.LOADED}, "after": {"state": ReplicaState.UNLOADING}}
    return _going("replica.unload_decided", one, by=by, now=now, **states)


def _retiring(one: Unload, *, by: str, now: datetime) -> ClusterEvent:
    return _going("replica.retired", one, by=by, now=now, after={})


def _going(
    kind: str, one: Unload, *, by: str, now: datetime, after: dict[str, Any], **told: Any
) -> ClusterEvent:
    event = events.build(
        kind,
        actor=by,
        now=now,
        subject=f"{one.model}#{one.index} on {one.node_name}",
        reason=one.reason,
        after={**after, "cause": one.cause},
        **told,
    )
    event.node_id = one.node
    return event
