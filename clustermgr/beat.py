"""Everything that ticks, on one screen."""

from datetime import timedelta
from typing import Any

from clustermgr.conf import ClusterSettings

# Tasks that wait for a node. They run on the thread pool: a 15-minute install must never
# keep a tick from running.
NODEOPS = (
    "nodes.confirm_replicas",
    "nodes.push_revocations",
    "nodes.stop_worker",
    "backendops.apply_op",
    "backendops.check_ops",
    "backendops.check_upgrades",
    "backendops.look_at_node",
    "backendops.read_galleries",
    "backendops.refresh_inventory",
    "backendops.send_cancel",
    "scheduling.cancel_install",
    "scheduling.look_at_node",
    "scheduling.observe",
    "scheduling.run_job",
    "scheduling.stop_replica",
    "scheduling.settle_stray",
)


def beat_schedule(cluster: ClusterSettings) -> dict[str, dict[str, Any]]:
    """One entry per tick; each expires before the next, so an outage leaves no backlog."""
    every: dict[str, timedelta] = {
        "clustermgr.pulse": cluster.pulse_every,
        "nodes.sweep_stale": cluster.sweep_every,
        "nodes.finish_drains": cluster.drain_check_every,
        "nodes.tidy": cluster.tidy_every,
        "nodes.push_revocations": cluster.tidy_every,
        "scheduling.reconcile": cluster.reconcile_every,
        "backendops.drain": cluster.ops_every,
        "backendops.reap": cluster.ops_reap_every,
        "backendops.refresh_inventory": cluster.inventory_every,
        "backendops.read_galleries": cluster.galleries_every,
        "backendops.tidy": cluster.history_tidy_every,
        "scheduling.reap_jobs": cluster.jobs_reap_every,
        "scheduling.observe": cluster.observe_every,
        "scheduling.sweep_leases": cluster.route_sweep_every,
        "scheduling.tidy": cluster.history_tidy_every,
    }
    return {
        name: {
            "task": name,
            "schedule": interval,
            "options": {"expires": interval.total_seconds()},
        }
        for name, interval in every.items()
    }


def task_routes() -> dict[str, dict[str, str]]:
    """Everything goes to `ticks` unless it waits for nodes."""
    return {name: {"queue": "nodeops"} for name in NODEOPS}
