"""Clusters made of views: no rows, no database."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import NAMESPACE_OID, UUID, uuid5

from nodes.builds import Offer
from nodes.states import ReplicaState
from scheduling.planning import deciding
from scheduling.planning.plans import Plan
from scheduling.planning.views import (
    ClusterView,
    JobView,
    Knobs,
    ModelView,
    NodeView,
    ReplicaView,
    RuleView,
)

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
GIB = 2**30
KNOBS = Knobs()


def ident(*words: object) -> UUID:
    return uuid5(NAMESPACE_OID, "/".join(map(str, words)))


def node(name: str = "gpu-1", **changes: Any) -> NodeView:
    """A good node with 24 GiB of VRAM."""
    values: dict[str, Any] = {
        "id": ident("node", name),
        "name": name,
        "approved_at": NOW,
        "total_vram": 24 * GIB,
        "available_vram": 24 * GIB,
    }
    return NodeView(**{**values, **changes})


def replica(on: NodeView, model: str = "llama", slot: int = 0, **changes: Any) -> ReplicaView:
    values: dict[str, Any] = {
        "id": ident("replica", on.name, model, slot),
        "node": on.id,
        "model": model,
        "slot": slot,
        "used": NOW.timestamp(),
        "revision": "r1",
    }
    return ReplicaView(**{**values, **changes})


def job(on: NodeView, model: str = "llama", slot: int = 0, **changes: Any) -> JobView:
    values: dict[str, Any] = {"id": 1, "node": on.id, "model": model, "slot": slot}
    return JobView(**{**values, "revision": "r1", **changes})


def model(name: str = "llama", *, rule: RuleView | None = None, **changes: Any) -> ModelView:
    values: dict[str, Any] = {"name": name, "revision": "r1", "backend": "reference"}
    return ModelView(**{**values, "rule": rule, **changes})


def wanted(number: int, **changes: Any) -> RuleView:
    return RuleView(**{"min_replicas": number, **changes})


def cluster(
    *nodes: NodeView,
    models: list[ModelView],
    replicas: list[ReplicaView] | None = None,
    jobs: list[JobView] | None = None,
    offers: Mapping[str, Offer] | None = None,
) -> ClusterView:
    return ClusterView(
        nodes=nodes,
        models=tuple(models),
        replicas=tuple(replicas or ()),
        jobs=tuple(jobs or ()),
        offers=offers or {},
    )


def plan(view: ClusterView, **changes: Any) -> Plan:
    return deciding.plan(view, now=changes.pop("now", NOW), knobs=Knobs(**changes))


def carried_out(view: ClusterView, done: Plan) -> ClusterView:
    """The view right after a plan was written: jobs open, leavers leaving, nothing finished."""
    leaving = {one.replica for one in done.unload}
    retired = {one.replica for one in done.retire}
    names = {one.id: one for one in view.nodes}
    rows = [
        row._replace(
            state=ReplicaState.UNLOADING if row.id in leaving else row.state,
            outdated_at=NOW if row.id in retired else row.outdated_at,
        )
        for row in view.replicas
    ]
    jobs = list(view.jobs)
    for number, one in enumerate(done.place, start=1000 + len(jobs)):
        on = names[one.node]
        rows.append(
            replica(on, one.model, one.index, state=ReplicaState.STAGING, revision=one.revision)
        )
        jobs.append(
            job(
                on,
                one.model,
                one.index,
                id=number,
                revision=one.revision,
                reserved_vram=one.vram,
            )
        )
    cancelled = {one.job for one in done.cancel}
    given_up = {(one.node, one.model, one.slot) for one in jobs if one.id in cancelled}
    rows = [row for row in rows if (row.node, row.model, row.slot) not in given_up]
    left = tuple(one for one in jobs if one.id not in cancelled)
    return replace(view, replicas=tuple(rows), jobs=left)
