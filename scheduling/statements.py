"""The statements that the ORM cannot say in one: many rows at once, each with its own values."""

# What this process holds, for another lease; whoever is missing in the answer was taken from us.
# Locked by id first, as by whoever ends many: an UPDATE locks rows as it finds them.
RENEW = """
WITH held AS MATERIALIZED (
    SELECT job.id
      FROM scheduling_loadjob job
      JOIN unnest(%(ids)s::bigint[], %(fences)s::bigint[]) AS claim (id, fence)
        ON job.id = claim.id AND job.fence = claim.fence
     WHERE job.state IN ('installing', 'staging', 'loading')
     ORDER BY job.id
       FOR NO KEY UPDATE OF job
)
UPDATE scheduling_loadjob job SET lease_until = %(until)s
  FROM held WHERE job.id = held.id
RETURNING job.id
"""

# All progress of one process, locked as above. What was shown is never taken back; whoever moves
# gets more time, up to a bound.
PROGRESS = """
WITH told AS MATERIALIZED (
    SELECT tick.*
      FROM scheduling_loadjob job
      JOIN unnest(%(ids)s::bigint[], %(fences)s::bigint[], %(phases)s::text[],
                  %(currents)s::bigint[], %(totals)s::bigint[], %(percentages)s::float8[])
           AS tick (id, fence, phase, current_bytes, total_bytes, percentage)
        ON job.id = tick.id AND job.fence = tick.fence
     WHERE job.state IN ('installing', 'staging', 'loading')
     ORDER BY job.id
       FOR NO KEY UPDATE OF job
)
UPDATE scheduling_loadjob job
   SET phase = told.phase, progress_at = %(now)s,
       percentage = greatest(job.percentage, told.percentage),
       current_bytes = greatest(job.current_bytes, told.current_bytes),
       total_bytes = greatest(job.total_bytes, told.total_bytes),
       deadline_at = greatest(job.deadline_at,
                              least(%(until)s, job.created_at + %(at_most)s::interval))
  FROM told WHERE job.id = told.id
"""

# Ends reservations and takes them off their nodes, in one statement: whoever ends a reservation
# second finds it ended, and takes nothing off. The nodes are locked before (nodes, then jobs).
END_RESERVATIONS = """
WITH ended AS (
    UPDATE scheduling_loadjob SET reservation_ended_at = %(now)s
     WHERE id = ANY(%(ids)s) AND reservation_ended_at IS NULL
    RETURNING node_id, reserved_vram
), freed AS (
    SELECT node_id, sum(reserved_vram) AS amount FROM ended GROUP BY node_id
)
UPDATE nodes_backendnode node
   SET reserved_vram = greatest(node.reserved_vram - freed.amount, 0)
  FROM freed WHERE node.id = freed.node_id
"""

# A plan's placements: slot, job, memory, decision and event of each, in one statement however many
# they are. A model that was edited since is not joined, nor a node that was closed, and a slot that
# somebody has is passed over: what is left out is decided anew by the next tick. Nodes are locked
# by id, as by everybody.
OPEN_JOBS = """
WITH wanted AS (
    SELECT *
      FROM unnest(%(ids)s::uuid[], %(models)s::text[], %(revisions)s::text[], %(nodes)s::uuid[],
                  %(slots)s::int[], %(causes)s::text[], %(vram)s::numeric[],
                  %(replaced)s::uuid[], %(summaries)s::text[], %(verdicts)s::text[],
                  %(subjects)s::text[])
           WITH ORDINALITY
           AS one (id, model, revision, node, slot, cause, vram, replaced, summary, verdicts,
                   subject, place)
), takers AS MATERIALIZED (
    SELECT node.id
      FROM nodes_backendnode node
     WHERE node.id = ANY(%(nodes)s::uuid[])
       AND node.retired_at IS NULL AND node.approved_at IS NOT NULL
       AND node.liveness = 'healthy' AND node.drain_requested_at IS NULL
       AND node.cordoned_at IS NULL AND node.quarantined_until IS NULL
     ORDER BY node.id
       FOR NO KEY UPDATE
), current AS (
    SELECT wanted.*, definition.backend, definition.options
      FROM wanted
      JOIN takers ON takers.id = wanted.node
      JOIN scheduling_modelloadinfo definition
        ON definition.model_name = wanted.model AND definition.config_revision = wanted.revision
), seated AS (
    INSERT INTO nodes_nodemodel
           (id, node_id, model_name, replica_index, state, backend_type, config_revision,
            created_at, updated_at, address, in_flight, loading_by, effective_options_hash, misses,
            cleanup_error, cleanup_attempts)
    SELECT id, node, model, slot, 'staging', backend, revision,
           %(now)s, %(now)s, '', 0, '', '', 0,
           '', 0
      FROM current
    ON CONFLICT DO NOTHING
    RETURNING id
), opened AS (
    INSERT INTO scheduling_loadjob
           (model_name, config_revision, backend, options, node_id, replica_index, replica_id,
            cause, requested_by, state, created_at, changed_at, due_at, reserved_vram,
            fence, claimed_by, last_error, address, phase, percentage, current_bytes, total_bytes,
            replaces_id)
    SELECT model, revision, backend, options, node, slot, id,
           cause, %(by)s, 'pending', %(now)s, %(now)s, %(now)s, vram,
           0, '', '', '', '', 0, 0, 0,
           replaced
      FROM current JOIN seated USING (id)
     ORDER BY place
    RETURNING id, model_name, replica_id, node_id, reserved_vram
), decided AS (
    INSERT INTO scheduling_placementdecision
           (at, model_name, config_revision, cause, node_id, replica_index, job_id,
            summary, smallest_fix, verdicts)
    SELECT %(now)s, model, revision, cause, node, slot, opened.id,
           summary, '', verdicts::jsonb
      FROM current JOIN opened ON opened.replica_id = current.id
     ORDER BY place
), told AS (
    INSERT INTO nodes_clusterevent
           (at, kind, severity, node_id, subject, actor, reason, before,
            after, request_id, acknowledged_by)
    SELECT %(now)s, 'replica.load_decided', 'info', node, subject, %(by)s, summary, '{}',
           jsonb_build_object('cause', cause, 'job', opened.id), %(request)s, ''
      FROM current JOIN opened ON opened.replica_id = current.id
     ORDER BY place
), reserved AS (
    UPDATE nodes_backendnode node
       SET reserved_vram = node.reserved_vram + more.amount
      FROM (SELECT node_id, sum(reserved_vram) AS amount FROM opened GROUP BY node_id) more
     WHERE node.id = more.node_id AND more.amount > 0
)
SELECT id FROM opened ORDER BY id
"""

# A plan's leavers, with an event for each, and a decision where that tells more: those that still
# serve nobody stop, the others get nothing new. Who got a request meanwhile stays, and so does one
# that somebody else is changing. And edits that have reached everybody, unless there was another
# since, or somebody is at the model (then the next tick has it): what is left of the old revision
# serves no more.
LET_GO = """
WITH leaver AS (
    SELECT *
      FROM unnest(%(ids)s::uuid[], %(stops)s::boolean[], %(decided)s::boolean[], %(models)s::text[],
                  %(nodes)s::uuid[], %(slots)s::int[], %(subjects)s::text[], %(causes)s::text[],
                  %(reasons)s::text[], %(summaries)s::text[])
           AS one (replica_id, stops, decided, model, node, slot, subject, cause, reason, summary)
), rolled AS MATERIALIZED (
    SELECT model.model_name, model.config_revision, model.rolling_since
      FROM scheduling_modelloadinfo model
      JOIN unnest(%(rolled)s::text[], %(revisions)s::text[]) AS one (name, revision)
        ON one.name = model.model_name AND one.revision = model.config_revision
     WHERE model.rolling_since IS NOT NULL
     ORDER BY model.model_name
       FOR NO KEY UPDATE OF model SKIP LOCKED
), turned AS MATERIALIZED (
    SELECT replica.id, replica.config_revision <> rolled.config_revision AS old
      FROM nodes_nodemodel replica JOIN rolled USING (model_name)
     WHERE (replica.outdated_at IS NULL) = (replica.config_revision <> rolled.config_revision)
     ORDER BY replica.id
       FOR NO KEY UPDATE OF replica
), leaving AS MATERIALIZED (
    SELECT leaver.*
      FROM leaver JOIN nodes_nodemodel replica ON replica.id = leaver.replica_id
     WHERE replica.state = 'loaded'
       AND CASE WHEN leaver.stops THEN replica.in_flight = 0 ELSE replica.outdated_at IS NULL END
       -- always so, and has those above locked first: they are waited for, which nobody may do
       -- who holds others already
       AND (SELECT count(*) FROM turned) >= 0
     ORDER BY replica.id
       FOR NO KEY UPDATE OF replica SKIP LOCKED
), changed AS (
    UPDATE nodes_nodemodel replica
       SET updated_at = %(now)s,
           state = CASE WHEN leaving.stops THEN 'unloading' ELSE replica.state END,
           outdated_at = CASE WHEN turned.old OR NOT leaving.stops
                              THEN coalesce(replica.outdated_at, %(now)s)
                              WHEN turned.old IS NULL THEN replica.outdated_at END
      FROM turned FULL JOIN leaving ON leaving.replica_id = turned.id
     WHERE replica.id = coalesce(turned.id, leaving.replica_id)
), ended AS (
    UPDATE scheduling_modelloadinfo model SET rolling_since = NULL, rolling_replicas = 0
      FROM rolled WHERE model.model_name = rolled.model_name
), noted AS (
    INSERT INTO scheduling_placementdecision
           (at, model_name, config_revision, cause, node_id, replica_index,
            summary, smallest_fix, verdicts)
    SELECT %(now)s, model, '', cause, node, slot, summary, '', '[]' FROM leaving WHERE decided
), told AS (
    INSERT INTO nodes_clusterevent
           (at, kind, severity, node_id, subject, actor, reason, before,
            after, request_id, acknowledged_by)
    SELECT %(now)s, CASE WHEN stops THEN 'replica.unload_decided' ELSE 'replica.retired' END,
           'info', node, subject, %(by)s, reason,
           CASE WHEN stops THEN '{"state": "loaded"}'::jsonb ELSE '{}' END,
           CASE WHEN stops THEN jsonb_build_object('state', 'unloading', 'cause', cause)
                ELSE jsonb_build_object('cause', cause) END,
           %(request)s, ''
      FROM leaving
     UNION ALL
    SELECT %(now)s, 'model.rolled', 'info', NULL, model_name, %(by)s, '', '{}',
           jsonb_build_object('config_revision', config_revision, 'since', rolling_since),
           %(request)s, ''
      FROM rolled
)
SELECT replica_id FROM leaving WHERE stops
"""

# What a plan says of rules that cannot be kept, or can again, with a decision and an event where it
# says something new. Only of rules that are as the plan saw them: an edit ends a pause, and must
# not be slept through because of a tick that had looked before. Who is at a rule changes it, or
# deletes it with its model and waits for a node that this tick holds: it is passed over, and the
# next tick has it.
HUNGER = """
WITH told AS (
    SELECT *
      FROM unnest(%(models)s::text[], %(seen)s::text[], %(capacities)s::bigint[],
                  %(sinces)s::timestamptz[], %(untils)s::timestamptz[], %(reasons)s::text[],
                  %(causes)s::text[], %(fixes)s::text[], %(verdicts)s::text[],
                  %(kinds)s::text[], %(severities)s::text[], %(sentences)s::text[],
                  %(befores)s::text[], %(afters)s::text[])
           WITH ORDINALITY
           AS one (model, seen, capacity, since, until, reason, cause, fix, verdicts,
                   kind, severity, sentence, before, after, place)
), held AS MATERIALIZED (
    SELECT rule.id, told.place
      FROM scheduling_modelschedulingconfig rule
      JOIN told ON told.model = rule.model_name AND told.seen = rule.xmin::text
     ORDER BY rule.id
       FOR NO KEY UPDATE OF rule SKIP LOCKED
), written AS (
    UPDATE scheduling_modelschedulingconfig rule
       SET unsatisfiable_since = told.since, unsatisfiable_until = told.until,
           unsatisfiable_reason = told.reason, capacity_seen = told.capacity
      FROM held JOIN told USING (place)
     WHERE rule.id = held.id
), decided AS (
    INSERT INTO scheduling_placementdecision
           (at, model_name, config_revision, cause, summary, smallest_fix, verdicts)
    SELECT %(now)s, model, '', cause, reason, fix, verdicts::jsonb
      FROM told JOIN held USING (place) WHERE cause <> '' ORDER BY place
)
INSERT INTO nodes_clusterevent
       (at, kind, severity, subject, actor, reason, before, after, request_id, acknowledged_by)
SELECT %(now)s, kind, severity, model, %(by)s, sentence, before::jsonb, after::jsonb,
       %(request)s, ''
  FROM told JOIN held USING (place) WHERE kind <> '' ORDER BY place
"""

# A counter that knows no transactions: everybody sees at once that it moved, and nobody waits.
CAPACITY_CAME = """
SELECT nextval('scheduling_capacity'),
       EXISTS (SELECT FROM scheduling_modelschedulingconfig WHERE unsatisfiable_since IS NOT NULL)
"""

# Nodes whose figure is not the sum of what jobs hold there, with that sum.
# Served by job_reservations.
RESERVED = """
SELECT node.id, coalesce(held.amount, 0)
  FROM nodes_backendnode node
  LEFT JOIN (
      SELECT node_id, sum(reserved_vram) AS amount
        FROM scheduling_loadjob WHERE reservation_ended_at IS NULL GROUP BY node_id
  ) held ON held.node_id = node.id
 WHERE node.reserved_vram <> coalesce(held.amount, 0)
"""

# The pick, as `routefunctions.py` has it and says why. A lease for each of the arrays' elements.
TAKE = """
SELECT * FROM route_take(
    %(model)s, %(leases)s::uuid[], %(holders)s::text[], %(untils)s::timestamptz[],
    %(kinds)s::text[], %(hots)s::uuid[], %(sessions)s::text[],
    %(cold)s::uuid[], %(busier)s, %(times_busier)s,
    %(barred)s::uuid[], %(revision)s::text, %(excluded)s::uuid[], %(now)s
)
"""

# Those of the leases that are (still) to end, with their replicas; the counts follow.
RELEASE = "SELECT * FROM route_release(%(leases)s::uuid[], %(expired_by)s::timestamptz)"

RENEW_LEASES = """
UPDATE scheduling_routelease SET expires_at = greatest(expires_at, %(until)s)
 WHERE id = ANY(%(leases)s::uuid[])
RETURNING id, expires_at
"""

# Replicas whose count is not the number of their leases.
MISCOUNTED = """
SELECT replica.id
  FROM nodes_nodemodel replica
  LEFT JOIN (
      SELECT replica_id, count(*) AS n FROM scheduling_routelease GROUP BY replica_id
  ) held ON held.replica_id = replica.id
 WHERE replica.in_flight <> coalesce(held.n, 0)
"""

HOLD_REPLICAS = """
SELECT 1 FROM nodes_nodemodel WHERE id = ANY(%(ids)s::uuid[]) ORDER BY id FOR NO KEY UPDATE
"""

RECOUNT = """
UPDATE nodes_nodemodel replica SET in_flight = held.n
  FROM (
      SELECT wrong.id, count(lease.id) AS n
        FROM unnest(%(ids)s::uuid[]) AS wrong (id)
        LEFT JOIN scheduling_routelease lease ON lease.replica_id = wrong.id
       GROUP BY wrong.id
  ) held
 WHERE replica.id = held.id AND replica.in_flight <> held.n
"""

# What one process counted; several add up in one row.
TALLY = """
INSERT INTO scheduling_routetally AS tally
       (model_name, minute, shadow, picks, hits, misses, pressure, lucky, regret, pressed_at)
SELECT * FROM unnest(
       %(names)s::text[], %(minutes)s::timestamptz[], %(shadows)s::boolean[], %(picks)s::bigint[],
       %(hits)s::bigint[], %(misses)s::bigint[], %(pressure)s::bigint[], %(lucky)s::bigint[],
       %(regret)s::bigint[], %(pressed_at)s::timestamptz[])
ON CONFLICT (model_name, minute, shadow) DO UPDATE
   SET picks = tally.picks + excluded.picks, hits = tally.hits + excluded.hits,
       misses = tally.misses + excluded.misses, pressure = tally.pressure + excluded.pressure,
       lucky = tally.lucky + excluded.lucky, regret = tally.regret + excluded.regret,
       pressed_at = greatest(tally.pressed_at, excluded.pressed_at)
"""
