"""Many rows into one picture for a plan: four statements at any size.

Said in SQL, because a tick reads thousands of rows and making model instances, or even converting
each value as the ORM does, takes longer than the reading. Bytes come as whole numbers, moments
that are only compared as seconds, and a node's labels and taints with the node.
"""

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import connection

from nodes.services import offers
from nodes.states import LABEL_PRECEDENCE
from nodes.taints import Taint
from scheduling.planning.views import (
    NOTHING,
    ClusterView,
    JobView,
    ModelView,
    NodeView,
    ReplicaView,
    RuleView,
)
from scheduling.states import ACTIVE

# Each in the order of its view's fields. `least`: a byte count may be one bit longer than a
# bigint, and eight exbibytes are as good as more.
NODES = """
SELECT node.id, node.name, node.node_type, node.approved_at, node.liveness,
       node.drain_requested_at, node.cordoned_at, node.quarantined_until,
       node.max_replicas_per_model,
       least(node.total_vram, 9223372036854775807)::bigint,
       least(node.available_vram, 9223372036854775807)::bigint,
       least(node.vram_budget_bytes, 9223372036854775807)::bigint,
       least(node.total_disk, 9223372036854775807)::bigint,
       least(node.available_disk, 9223372036854775807)::bigint,
       least(node.total_ram, 9223372036854775807)::bigint,
       least(node.available_ram, 9223372036854775807)::bigint,
       node.capability,
       label.pairs, taint.triples
  FROM nodes_backendnode node
  LEFT JOIN (
      -- the strongest owner's value comes last, and the last one counts
      SELECT node_id,
             json_object_agg(key, value
                             ORDER BY array_position(%(weakest_first)s, source::text)) AS pairs
        FROM nodes_nodelabel GROUP BY node_id
  ) label ON label.node_id = node.id
  LEFT JOIN (
      SELECT node_id, json_agg(json_build_array(key, value, effect) ORDER BY key) AS triples
        FROM nodes_nodetaint GROUP BY node_id
  ) taint ON taint.node_id = node.id
 WHERE node.retired_at IS NULL
"""

# Slots that are taken and loads under way, as of one moment: a load that is published between two
# statements would be neither. Each row is a replica, its job, or both. A node that has beaten since
# a load ended reports that memory itself; the reaper writes so a little later. One that has not
# beaten since a process was stopped does not report yet what that freed.
SLOTS = """
SELECT replica.id, replica.node_id, replica.model_name, replica.replica_index, replica.state,
       replica.in_flight,
       extract(epoch FROM coalesce(replica.last_used, replica.created_at))::float8,
       replica.config_revision, replica.suspect_since, replica.outdated_at, replica.withdrawn_at,
       replica.cleanup_attempts,
       job.id, job.node_id, job.model_name, job.replica_index, job.config_revision, job.state,
       least(job.reserved_vram, 9223372036854775807)::bigint, job.reservation_ended_at,
       job.replaces_id, job.freed_at
  FROM nodes_nodemodel replica
  FULL JOIN (
      SELECT * FROM scheduling_loadjob
       WHERE state = ANY(%(active)s)
          OR (reservation_ended_at IS NULL AND reserved_vram > 0 AND NOT EXISTS (
                 SELECT FROM nodes_backendnode host
                  WHERE host.id = node_id AND host.last_heartbeat > finished_at))
          OR (freed_at > %(lately)s AND NOT EXISTS (
                 SELECT FROM nodes_backendnode host
                  WHERE host.id = node_id AND host.last_heartbeat > freed_at))
  ) job ON job.replica_id = replica.id
"""
FREED_FOR = timedelta(minutes=1)  # who has not beaten for so long is not counted on anyhow
UNLUCKY_FOR = timedelta(minutes=30)  # where a load failed, others are tried first for so long
REPLICA = len(ReplicaView._fields)

# A model has a definition, a rule, or both. Pressed: enough requests had to go elsewhere lately.
# They are counted by the minute: with a threshold above one, some may be a minute too old. What was
# counted in the minute in which the model's last load began, or before, is answered by that: web
# processes write up to seconds later, and would press for a second one.
MODELS = """
SELECT coalesce(model.model_name, rule.model_name),
       model.config_revision, model.backend,
       CASE WHEN model.size_bytes >= 0
            THEN least(model.size_bytes, 9223372036854775807)::bigint END,
       CASE WHEN model.vram_bytes >= 0
            THEN least(model.vram_bytes, 9223372036854775807)::bigint END,
       model.concurrency_group, model.failures, model.retry_at, model.last_error,
       model.rolling_replicas,
       CASE WHEN model.failures > 0 THEN (
           SELECT array_agg(DISTINCT job.node_id)
             FROM (SELECT node_id, state, finished_at FROM scheduling_loadjob
                    WHERE model_name = model.model_name ORDER BY id DESC LIMIT 50) job
            WHERE job.state = 'failed' AND job.finished_at > %(unlucky)s
       ) END,
       rule.selector, rule.tolerations::json, rule.min_replicas, rule.max_replicas, rule.spread_all,
       rule.pinned, rule.priority, rule.strategy,
       rule.unsatisfiable_since,
       -- a pause is over when something changed since it began
       CASE WHEN rule.unsatisfiable_until > %(now)s AND rule.capacity_seen <> capacity.last_value
            THEN %(now)s ELSE rule.unsatisfiable_until END,
       rule.unsatisfiable_reason, rule.xmin::text, capacity.last_value,
       pressed.model_name IS NOT NULL
  FROM scheduling_modelloadinfo model
  FULL JOIN scheduling_modelschedulingconfig rule ON rule.model_name = model.model_name
  LEFT JOIN (
      SELECT model_name FROM scheduling_routetally tally
       WHERE minute >= %(since)s - interval '1 minute' AND pressed_at >= %(since)s AND NOT shadow
         AND minute > coalesce(
             (SELECT created_at FROM scheduling_loadjob job
               WHERE job.model_name = tally.model_name ORDER BY job.id DESC LIMIT 1),
             '-infinity')
       GROUP BY model_name HAVING sum(pressure) >= %(enough)s
  ) pressed ON pressed.model_name = coalesce(model.model_name, rule.model_name)
 CROSS JOIN scheduling_capacity capacity
"""
MODEL = (
    "revision",
    "backend",
    "size_bytes",
    "vram_bytes",
    "group",
    "failures",
    "retry_at",
    "last_error",
    "rolling",
    "failed_on",
)
RULE = (
    "selector",
    "tolerations",
    "min_replicas",
    "max_replicas",
    "spread_all",
    "pinned",
    "priority",
    "strategy",
    "unsatisfiable_since",
    "unsatisfiable_until",
    "unsatisfiable_reason",
    "seen",
    "capacity",
)
WEAKEST_FIRST = [source.value for source in reversed(LABEL_PRECEDENCE)]
Row = tuple[Any, ...]


def take(*, now: datetime, backends: Collection[str] = ()) -> ClusterView:
    """The cluster as it is in this transaction; `backends`: more than its models' own.

    Its parts are of different moments, in an order that errs on the safe side. Rules before all
    they depend on: what came later than them is looked at again. Slots before nodes: what a job
    does not hold any more is in its node's own figures by then.
    """
    definitions, slots, nodes = (_rows(*statement) for statement in reading(now=now))
    models = tuple(_model(row[:-1]) for row in definitions)
    return ClusterView(
        nodes=tuple(map(_node, nodes)),
        models=models,
        replicas=tuple(ReplicaView._make(row[:REPLICA]) for row in slots if row[0] is not None),
        jobs=tuple(JobView._make(row[REPLICA:]) for row in slots if row[REPLICA] is not None),
        pressed=frozenset(row[0] for row in definitions if row[-1]),
        offers=offers.limited({model.backend for model in models if model.backend}.union(backends)),
    )


def reading(*, now: datetime) -> tuple[tuple[str, dict[str, Any]], ...]:
    """Statements and their parameters."""
    cluster = settings.CLUSTER
    lately = now - cluster.prefix_pressure_window
    return (
        (
            MODELS,
            {
                "now": now,
                "since": lately,
                "enough": cluster.prefix_pressure_threshold,
                "unlucky": now - UNLUCKY_FOR,
            },
        ),
        (SLOTS, {"active": [state.value for state in ACTIVE], "lately": now - FREED_FOR}),
        (NODES, {"weakest_first": WEAKEST_FIRST}),
    )


def _rows(statement: str, values: dict[str, Any]) -> list[Row]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        rows: list[Row] = cursor.fetchall()
        return rows


def _node(row: Row) -> NodeView:
    *facts, pairs, triples = row
    return NodeView._make((*facts, pairs or NOTHING, tuple(map(_taint, triples or ()))))


def _taint(triple: list[str]) -> Taint:
    key, value, effect = triple
    return Taint(key=key, value=value, effect=effect)


def _model(row: Row) -> ModelView:
    name, *facts = row
    known = dict(zip(MODEL, facts, strict=False)) if facts[0] is not None else {}
    wanted = facts[len(MODEL) :]
    return ModelView(name=name, rule=_rule(wanted) if wanted[0] is not None else None, **known)


def _rule(values: list[Any]) -> RuleView:
    return RuleView(**dict(zip(RULE, values, strict=True)))
