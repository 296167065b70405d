"""The statements that the ORM cannot say in one: many rows at once, each with its own values."""

# Take what is due, as many as fit: per node (its place in that node's line, behind what already
# runs there) and in all. Served by op_outstanding. An op that failed begins a new attempt under
# a new generation; one that was put back (its process died) goes on with the one it has.
DISPATCH = """
WITH busy AS (
    SELECT node_id, count(*) AS running
      FROM backendops_pendingbackendop
     WHERE state = 'running'
     GROUP BY node_id
), due AS (
    SELECT op.id, op.due_at, op.node_id,
           row_number() OVER (PARTITION BY op.node_id ORDER BY op.due_at, op.id) AS place
      FROM backendops_pendingbackendop op
      JOIN nodes_backendnode node ON node.id = op.node_id
     WHERE op.state IN ('queued', 'failed') AND op.due_at <= %(now)s
       AND node.node_type = 'backend' AND node.retired_at IS NULL
       AND node.approved_at IS NOT NULL AND node.drain_requested_at IS NULL
       AND node.liveness = 'healthy'
), picked AS (
    SELECT due.id
      FROM due LEFT JOIN busy USING (node_id)
     WHERE due.place + coalesce(busy.running, 0) <= %(per_node)s
     ORDER BY due.place, due.due_at, due.id
     LIMIT greatest(%(at_once)s - (SELECT coalesce(sum(running), 0) FROM busy), 0)
)
UPDATE backendops_pendingbackendop op
   SET state = 'running', fence = op.fence + 1, lease_until = %(until)s, claimed_by = '',
       started_at = %(now)s, changed_at = %(now)s, note = '',
       change = nextval('backendops_change'),
       generation = op.generation + (op.state = 'failed')::int,
       sent_at = CASE WHEN op.state = 'failed' THEN NULL ELSE op.sent_at END,
       before = CASE WHEN op.state = 'failed' THEN '{}'::jsonb ELSE op.before END,
       phase = CASE WHEN op.state = 'failed' THEN '' ELSE op.phase END,
       file_name = CASE WHEN op.state = 'failed' THEN '' ELSE op.file_name END,
       current_bytes = CASE WHEN op.state = 'failed' THEN 0 ELSE op.current_bytes END,
       total_bytes = CASE WHEN op.state = 'failed' THEN 0 ELSE op.total_bytes END,
       percentage = CASE WHEN op.state = 'failed' THEN 0 ELSE op.percentage END,
       progress_seq = CASE WHEN op.state = 'failed' THEN 0 ELSE op.progress_seq END,
       progress_at = NULL,  -- nothing heard yet, not for as long as nobody was at it
       rate = 0
  FROM picked
 WHERE op.id = picked.id AND op.state IN ('queued', 'failed')
RETURNING op.id, op.fence
"""

# All progress of one process in one statement. A late reading changes nothing: the fence is the
# claim's, a settled op is not touched, and what was shown is never taken back. With the ops goes
# the highest percentage that their operations have shown: progress.aggregate in SQL, which has to
# look into `written`, because a statement does not see what it changes itself.
PROGRESS = """
WITH written AS (
    UPDATE backendops_pendingbackendop op
       SET phase = told.phase, file_name = told.file_name,
           current_bytes = greatest(op.current_bytes, told.current_bytes),
           total_bytes = greatest(op.total_bytes, told.total_bytes),
           percentage = greatest(op.percentage, told.percentage),
           progress_seq = greatest(op.progress_seq, told.seq),
           progress_at = %(now)s, rate = told.rate, change = nextval('backendops_change')
      FROM unnest(%(ids)s::bigint[], %(fences)s::bigint[], %(phases)s::text[], %(files)s::text[],
                  %(currents)s::bigint[], %(totals)s::bigint[], %(percentages)s::float8[],
                  %(seqs)s::bigint[], %(rates)s::float8[])
           AS told (id, fence, phase, file_name, current_bytes, total_bytes, percentage, seq, rate)
     WHERE op.id = told.id AND op.fence = told.fence AND op.state IN ('running', 'cancelling')
       AND (told.seq = 0 OR told.seq > op.progress_seq)
    RETURNING op.id, op.percentage, op.total_bytes
), touched AS (
    SELECT DISTINCT operation_id
      FROM backendops_operationshare JOIN written ON written.id = op_id
), sized AS (
    SELECT share.operation_id, op.state, coalesce(written.percentage, op.percentage) AS percentage,
           nullif(coalesce(written.total_bytes, op.total_bytes), 0) AS total_bytes
      FROM backendops_operationshare share
      JOIN touched USING (operation_id)
      JOIN backendops_pendingbackendop op ON op.id = share.op_id
      LEFT JOIN written ON written.id = op.id
     WHERE op.state NOT IN ('cancelled', 'superseded')
), weighed AS (
    SELECT operation_id,
           coalesce(total_bytes, avg(total_bytes) OVER (PARTITION BY operation_id), 1)::float8
               AS weight,
           CASE WHEN state = 'succeeded' THEN 100 ELSE percentage END AS percentage
      FROM sized
), bars AS (
    SELECT operation_id, sum(weight * percentage) / sum(weight) AS percentage
      FROM weighed GROUP BY operation_id
), held AS MATERIALIZED (
    -- two processes may have ops of the same operations: in order, or they deadlock
    SELECT operation.id, bars.percentage
      FROM backendops_operation operation JOIN bars ON bars.operation_id = operation.id
     WHERE operation.progress_floor < bars.percentage
     ORDER BY operation.id
       FOR NO KEY UPDATE OF operation
)
UPDATE backendops_operation operation
   SET progress_floor = greatest(operation.progress_floor, held.percentage)
  FROM held
 WHERE operation.id = held.id
"""

# Keep what this process holds; whatever is not returned was taken away from it.
RENEW = """
UPDATE backendops_pendingbackendop op
   SET lease_until = %(until)s
  FROM unnest(%(ids)s::bigint[], %(fences)s::bigint[]) AS held (id, fence)
 WHERE op.id = held.id AND op.fence = held.fence AND op.state IN ('running', 'cancelling')
RETURNING op.id
"""

# Nodes told what they have. Their rows are held from here to the end of the transaction, and an
# answer older than what is known changes nothing.
OBSERVED = """
INSERT INTO backendops_nodeinventory AS known (node_id, observed_at, asked_at, error)
SELECT node_id, %(now)s, %(now)s, '' FROM unnest(%(nodes)s::uuid[]) AS told (node_id) ORDER BY 1
    ON CONFLICT (node_id) DO UPDATE
   SET observed_at = EXCLUDED.observed_at, asked_at = EXCLUDED.asked_at, error = ''
 WHERE known.observed_at IS NULL OR known.observed_at <= EXCLUDED.observed_at
"""

# Of some backends those that are not for every node: no gallery has them, or only builds for
# certain hardware. A name may stand for builds (a meta backend), be one of them, or be an alias.
# Silent while no gallery was read.
LIMITED = """
WITH build AS (
    SELECT entry.name AS meta, entry.alias, one.key AS capability, one.value AS name
      FROM backendops_gallerybackend entry, jsonb_each_text(entry.capabilities) one
), wanted AS (
    SELECT DISTINCT name FROM unnest(%(names)s::text[]) AS one (name)
     WHERE EXISTS (SELECT FROM backendops_gallerybackend)
), offered AS (
    SELECT wanted.name, build.capability, build.name AS build
      FROM wanted JOIN build ON wanted.name IN (build.meta, build.alias, build.name)
    UNION
    SELECT wanted.name, coalesce(build.capability, %(plain)s), entry.name
      FROM wanted
      JOIN backendops_gallerybackend entry
        ON wanted.name IN (entry.name, entry.alias) AND entry.capabilities = '{}'
      LEFT JOIN build ON build.name = entry.name
), limited AS (
    SELECT wanted.name,
           coalesce(array_agg(DISTINCT offered.capability)
                    FILTER (WHERE offered.capability IS NOT NULL), '{}') AS builds,
           array_agg(DISTINCT offered.build) AS names
      FROM wanted LEFT JOIN offered USING (name)
     GROUP BY wanted.name
    HAVING NOT coalesce(bool_or(offered.capability = %(plain)s), false)
)
SELECT limited.name, limited.builds,
       (SELECT array_agg(DISTINCT here.node_id) FROM backendops_nodebackend here
         WHERE here.name = limited.name OR here.name = ANY(limited.names)),
       (SELECT array_agg(node_id) FROM backendops_nodeinventory WHERE observed_at IS NOT NULL)
  FROM limited
"""
