"""Operations as LocalAI's clients read them, with what we know besides."""

from datetime import datetime
from typing import Any

from backendops import progress
from backendops.models import Operation, PendingBackendOp
from backendops.services.queueing import Place
from backendops.services.requesting import Sorting
from backendops.services.summaries import Summary, cancellable, reading, silence
from backendops.services.targeting import Chosen
from backendops.services.upgrades import Step
from backendops.states import ATTENTION, OUTSTANDING, OperationState, OpState, Verb
from backendops.upgrading import Upgrade

Json = dict[str, Any]

NODE_STATUS = {
    OpState.QUEUED: "queued",
    OpState.RUNNING: "downloading",
    OpState.UNCONFIRMED: "running_on_worker",
    OpState.CANCELLING: "running_on_worker",
    OpState.SUCCEEDED: "success",
    OpState.FAILED: "error",
    OpState.DEAD: "error",
    # LocalAI has no word for these; its clients must not take them for done
    OpState.CANCELLED: "error",
    OpState.SUPERSEDED: "error",
}
TASK = {Verb.DELETE: "deletion", Verb.STOP: "stop"}
OUTCOME = {
    OperationState.SUCCEEDED: "completed",
    OperationState.CANCELLED: "cancelled",
    OperationState.PARTLY_CANCELLED: "cancelled",  # never told as a success
    OperationState.PARTIAL: "failed",
    OperationState.FAILED: "failed",
}
UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def op_json(op: PendingBackendOp, place: Place | None = None, *, now: datetime) -> Json:
    state, at = OpState(op.state), reading(op, now=now)
    left, quiet = progress.eta(at), silence(op, now=now)
    return {
        "node_id": str(op.node_id),
        "node_name": op.node.name,
        "status": NODE_STATUS[state],
        "file_name": op.file_name,
        "current": size(op.current_bytes),
        "total": size(op.total_bytes),
        "percentage": progress.percentage_of(at),
        "phase": op.phase,
        "error": _error(op),
        "op": op.pk,
        "state": state,
        "note": op.note,
        "attempts": op.attempts,
        "currentBytes": op.current_bytes,
        "totalBytes": op.total_bytes,
        "rate": at.rate or None,
        "etaSeconds": left.total_seconds() if left else None,
        "silentSeconds": quiet.total_seconds() if quiet else None,
        "startedAt": op.started_at,
        "finishedAt": op.finished_at,
        "version": op.after.get("version", ""),
        "digest": op.after.get("digest", ""),
        "nextAt": op.due_at if state in OUTSTANDING else None,
        "cancellable": cancellable(op),
        "position": place.position if place else None,
        "behind": place.behind if place else "",
        "change": op.change,
    }


def operation_json(summary: Summary, places: dict[int, Place], *, now: datetime) -> Json:
    operation, aggregate = summary.operation, summary.progress
    queued = summary.state == OperationState.QUEUED
    return {
        **_names(operation),
        "progress": int(aggregate.percentage),
        "taskType": "Waiting" if queued else TASK.get(Verb(operation.verb), "Installation"),
        "isDeletion": operation.verb == Verb.DELETE,
        "isQueued": queued,
        "cancellable": summary.cancellable,
        "message": _message(summary),
        **_optional(summary),
        "nodes": [op_json(op, places.get(op.pk), now=now) for op in summary.ops],
        "state": summary.state,
        "verb": operation.verb,
        "requestedBy": operation.requested_by,
        "requestedAt": operation.requested_at,
        "eta": now + aggregate.eta if aggregate.eta is not None else None,
        "counts": {state.value: count for state, count in summary.counts.items() if count},
        "retryOf": str(operation.retry_of_id) if operation.retry_of_id else None,
        "acknowledgedAt": operation.acknowledged_at,
    }


def detail_json(summary: Summary, places: dict[int, Place], *, now: datetime) -> Json:
    operation = summary.operation
    return {
        **operation_json(summary, places, now=now),
        "request": {
            "backend": operation.backend,
            "uri": operation.uri,
            "name": operation.name,
            "alias": operation.alias,
            "galleries": operation.galleries,
            "target": operation.target,
        },
        "reason": operation.reason,
        "skipped": operation.skipped,
        "acknowledgedBy": operation.acknowledged_by,
        "finishedAt": summary.finished_at,
    }


def job_json(summary: Summary) -> Json:
    job: Json = {
        "progress": summary.progress.percentage,
        "message": _message(summary),
        "galleryElementName": summary.operation.backend,
        "processed": not summary.active,
        "deletion": summary.operation.verb == Verb.DELETE,
        "queued": summary.state == OperationState.QUEUED,
        "state": summary.state,
        "jobID": str(summary.operation.pk),
    }
    if summary.error:
        job["error"] = summary.error
    if summary.state == OperationState.SUCCEEDED:
        job["completed"] = True
    if summary.state == OperationState.CANCELLED:
        job["cancelled"] = True
    return job


def record_json(summary: Summary) -> Json:
    operation = summary.operation
    starts = [op.started_at for op in summary.ops if op.started_at]
    record: Json = {
        **_names(operation),
        "taskType": TASK.get(Verb(operation.verb), "installation"),
        "outcome": OUTCOME.get(summary.state, summary.state),
        "startedAt": min(starts) if starts else None,
        "finishedAt": summary.finished_at,
        "state": summary.state,
        "verb": operation.verb,
        "requestedBy": operation.requested_by,
        "requestedAt": operation.requested_at,
        "reason": operation.reason,
        "target": operation.target,
        "nodes": summary.total,
        "failedNodes": summary.failed,
        "acknowledgedBy": operation.acknowledged_by,
        "acknowledgedAt": operation.acknowledged_at,
    }
    del record["fullName"]
    if summary.total == 1:
        record["nodeID"] = str(summary.ops[0].node_id)
    if summary.error:
        record["error"] = summary.error
    return record


def preview_json(order: Any, chosen: Chosen, sorting: Sorting) -> Json:
    replaced = {op.node_id for op in sorting.superseded}
    joined = {op.node_id for op in sorting.joined}
    blocked = {skip.node.pk for skip in sorting.blocked}

    def what(node_id: Any) -> str:
        return "joins" if node_id in joined else "replaces" if node_id in replaced else "starts"

    return {
        "verb": order.verb,
        "backend": order.backend,
        "target": chosen.words,
        "nodes": [
            {"node": str(node.pk), "name": node.name, "what": what(node.pk)}
            for node in chosen.nodes
            if node.pk not in blocked
        ],
        "skipped": skipped_json([*chosen.skipped, *sorting.blocked]),
    }


def skipped_json(skipped: Any) -> list[Json]:
    return [
        {"node": str(skip.node.pk), "name": skip.node.name, "why": skip.why} for skip in skipped
    ]


def upgrade_json(found: Upgrade) -> Json:
    """LocalAI's entry; `nodes` is where something would change."""
    spread, offer = found.spread, found.offer
    entry: Json = {
        "backend_name": found.backend,
        "installed_version": spread.version,
        "available_version": offer.version,
        "gallery": offer.gallery,
        "reason": found.why,
        "nodes": [
            {"node_id": str(place.node_id), "node_name": place.node_name} for place in found.places
        ],
    }
    if spread.digest:
        entry["installed_digest"] = spread.digest
    if offer.digest:
        entry["available_digest"] = offer.digest
    if spread.drift:
        entry["node_drift"] = [
            {
                "node_id": str(place.node_id),
                "node_name": place.node_name,
                "version": place.version,
                "digest": place.digest,
            }
            for place in spread.drift
        ]
    return entry


def step_json(step: Step, operation: Operation | None, refusal: str) -> Json:
    """One backend of "upgrade all"."""
    return {
        "backend": step.upgrade.backend,
        "available_version": step.upgrade.offer.version,
        "nodes": [{"node": str(node.pk), "name": node.name} for node in step.nodes],
        "skipped": skipped_json(step.skipped),
        "jobID": str(operation.pk) if operation else None,
        "error": refusal,
    }


def size(count: int) -> str:
    """Bytes in the words that workers use; empty where there are none."""
    amount, unit = float(count), 0
    while amount >= 1024 and unit < len(UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{amount:.1f} {UNITS[unit]}"


def _error(op: PendingBackendOp) -> str:
    if NODE_STATUS[OpState(op.state)] != "error":
        return ""
    return op.last_error if op.state in ATTENTION else op.note


def _names(operation: Operation) -> Json:
    galleries = operation.galleries
    prefix = f"{galleries[0]['name']}@" if len(galleries) == 1 and galleries[0]["name"] else ""
    return {
        "id": str(operation.pk),
        "name": operation.backend,
        "fullName": f"{prefix}{operation.backend}",
        "jobID": str(operation.pk),
        "isBackend": True,
    }


def _optional(summary: Summary) -> Json:
    """Keys that LocalAI leaves out where there is nothing to tell."""
    told: Json = {}
    if summary.total == 1:
        told |= {"nodeID": str(summary.ops[0].node_id), "nodeName": summary.ops[0].node.name}
    phases = {op.phase for op in summary.ops if op.state == OpState.RUNNING and op.phase}
    if len(phases) == 1:
        told["phase"] = phases.pop()
    if summary.progress.total_bytes:
        told["currentBytes"] = summary.progress.current_bytes
        told["totalBytes"] = summary.progress.total_bytes
    if summary.error:
        told["error"] = summary.error
    return told


def _message(summary: Summary) -> str:
    if summary.state == OperationState.SUCCEEDED:
        return "completed"  # the word LocalAI's clients compare with
    if summary.total == 1:
        return summary.ops[0].note or str(summary.state)
    return f"{summary.state}: {summary.done} of {summary.total} nodes done"
