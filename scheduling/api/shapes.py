"""Models, rules, jobs and decisions as they are answered."""

import json
from dataclasses import asdict
from typing import Any

from nodes.models import NodeModel
from nodes.states import ReplicaState
from scheduling import rules
from scheduling.models import LoadJob, ModelLoadInfo, ModelSchedulingConfig, PlacementDecision
from scheduling.services import jobprogress
from scheduling.services.counting import Capacity
from scheduling.services.standing import Standing

Json = dict[str, Any]
# LocalAI counts ticks and pauses at the third; we keep times
WAITS, PAUSED = 1, 3


def rule_json(standing: Standing) -> Json:
    rule = standing.rule
    assert rule is not None
    return {
        **_localai(rule),
        "selector": rule.selector,
        # Whoever reads a list must not fail at one rule that holds none; `why` says so
        "tolerations": rule.tolerations if isinstance(rule.tolerations, list) else [],
        "pinned": rule.pinned,
        "priority": rule.priority,
        "strategy": rule.strategy,
        "unsatisfiable_since": rule.unsatisfiable_since,
        "unsatisfiable_reason": rule.unsatisfiable_reason,
        "matching_nodes": standing.matching or 0,
        "desired": standing.desired,
        "actual": standing.actual,
        "loading": standing.loading,
        "outdated": standing.outdated,
        "why": standing.why,
        "version": rule.version,
        "updated_by": rule.updated_by,
    }


def _localai(rule: ModelSchedulingConfig) -> Json:
    """In its order; what is marked so is left out when it is empty, as Go does."""
    pairs = rules.as_pairs(rule.selector)
    optional: Json = {
        "node_selector": json.dumps(pairs, separators=(",", ":"), sort_keys=True) if pairs else "",
        "min_replicas": None,
        "max_replicas": None,
        "spread_all": rule.spread_all,
        "route_policy": rule.route_policy,
        "balance_abs_threshold": rule.balance_abs_threshold,
        "balance_rel_threshold": rule.balance_rel_threshold,
        "min_prefix_match": rule.min_prefix_match,
        "unsatisfiable_until": rule.unsatisfiable_until,
    }
    always = {"min_replicas": rule.min_replicas, "max_replicas": rule.max_replicas}
    told = {key: always.get(key, value) for key, value in optional.items()}
    return {
        "id": str(rule.pk),
        "model_name": rule.model_name,
        **{key: value for key, value in told.items() if value or key in always},
        "unsatisfiable_ticks": _ticks(rule),
        "created_at": rule.created_at,
        "updated_at": rule.updated_at,
    }


def _ticks(rule: ModelSchedulingConfig) -> int:
    if rule.unsatisfiable_until is not None:
        return PAUSED
    return WAITS if rule.unsatisfiable_since is not None else 0


def model_json(model: ModelLoadInfo, standing: Standing) -> Json:
    return {
        "name": model.model_name,
        "backend": model.backend,
        "options": model.options,
        "size_bytes": model.size_bytes,
        "vram_bytes": model.vram_bytes,
        "concurrency_group": model.concurrency_group,
        "config_revision": model.config_revision,
        "version": model.version,
        "created_at": model.created_at,
        "created_by": model.created_by,
        "updated_at": model.updated_at,
        "updated_by": model.updated_by,
        "failures": model.failures,
        "retry_at": model.retry_at,
        "last_error": model.last_error,
        "rolling_since": model.rolling_since,
        "desired": standing.desired,
        "actual": standing.actual,
        "loading": standing.loading,
        "outdated": standing.outdated,
        "unloading": standing.unloading,
        "why": standing.why,
        "since": standing.since,
        "rule": rule_json(standing) if standing.rule else None,
    }


def replica_json(replica: NodeModel, *, revision: str, serving: bool) -> Json:
    return {
        "id": str(replica.pk),
        "node_id": str(replica.node_id),
        "node_name": replica.node.name,
        "replica_index": replica.replica_index,
        "state": ReplicaState(replica.state),
        "serving": serving,
        "in_flight": replica.in_flight,
        "address": replica.address,
        "backend": replica.backend_type,
        "config_revision": replica.config_revision,
        "current": replica.outdated_at is None and replica.config_revision == revision,
        "outdated_at": replica.outdated_at,
        "withdrawn_at": replica.withdrawn_at,
        "ejected_until": replica.ejected_until,
        "last_used": replica.last_used,
        "last_confirmed_at": replica.last_confirmed_at,
        "cleanup_error": replica.cleanup_error,
        "created_at": replica.created_at,
    }


def job_json(job: LoadJob) -> Json:
    left = jobprogress.eta(job)
    return {
        "id": job.pk,
        "model_name": job.model_name,
        "config_revision": job.config_revision,
        "backend": job.backend,
        "node_id": str(job.node_id),
        "node_name": job.node.name,
        "replica_index": job.replica_index,
        "cause": job.cause,
        "requested_by": job.requested_by,
        "state": job.state,
        "phase": job.phase,
        "percentage": jobprogress.percentage(job),
        "current_bytes": job.current_bytes,
        "total_bytes": job.total_bytes,
        "eta_seconds": left.total_seconds() if left else None,
        "reserved_vram": job.reserved_vram,
        "created_at": job.created_at,
        "started_at": job.started_at,
        "finished_at": job.finished_at,
        "died_at": job.died_at,
        "deadline_at": job.deadline_at,
        "last_error": job.last_error,
    }


def decision_json(decision: PlacementDecision) -> Json:
    node = decision.node
    return {
        "id": decision.pk,
        "at": decision.at,
        "cause": decision.cause,
        "config_revision": decision.config_revision,
        "node_id": str(node.pk) if node else None,
        "node_name": node.name if node else None,
        "replica_index": decision.replica_index,
        "job": decision.job_id,
        "summary": decision.summary,
        "smallest_fix": decision.smallest_fix,
        "verdicts": decision.verdicts,
    }


def capacity_json(capacity: Capacity) -> Json:
    return asdict(capacity)
