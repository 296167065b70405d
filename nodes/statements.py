"""SQL that the ORM cannot say, each statement once: sync services and async doors run the same."""

# A lost second of heartbeats or failure counts is told again by the next one; waiting for the
# disk each time would cost more than everything else here.
UNSYNCED = "SET LOCAL synchronous_commit TO off"

# Parameters: nodes.services.beating.parameters().
# - One statement for many nodes; the ORM's bulk_update would write a CASE per row and column.
# - Rows are locked in id order, so that two processes flushing at once wait and never deadlock;
#   served by the primary key.
# - No touched column has an index: the updates stay HOT.
# - NULL means "not told". A node that is pending or has left is only known to be there; a
#   retired one is not listened to at all.
# - LEAST skips NULLs, so NULLIF(.., 0) reads "no budget" and "total unknown" as no bound.
# - Answers with the nodes whose hardware is not what it was (what was computed from it follows),
#   and with those that have noticeably more room than they had: a process died, an operator raised
#   a budget. Noticeable is a sixteenth of all of it, but at least 256 MiB, by which free memory
#   wobbles without any reason, and at most 1 GiB: on a large card a model that is much smaller than
#   a sixteenth may be waiting. RAM counts only where models live in it, which is without a GPU.
# - The budget may not exceed the total (constraint node_budget_within_total), and one worker
#   whose card shrank must not make the whole batch fail.
# - reserved_vram is not touched: a load takes minutes, and its job owns what it reserved until
#   the first beat after it (D-24).
RECORD_BEATS = """
WITH beat AS (
    SELECT * FROM unnest(
        %s::uuid[], %s::timestamptz[],
        %s::numeric[], %s::numeric[], %s::numeric[], %s::numeric[], %s::numeric[], %s::text[]
    ) AS told (
        id, received_at,
        available_vram, total_vram, available_ram, available_disk, total_disk, gpu_vendor
    )
), heard AS (
    SELECT node.id, node.total_vram AS old_total, node.gpu_vendor AS old_vendor,
        node.available_vram AS old_vram, node.available_ram AS old_ram,
        node.available_disk AS old_disk,
        node.approved_at IS NOT NULL AND node.left_at IS NULL AS listened_to
    FROM nodes_backendnode node JOIN beat ON beat.id = node.id
    WHERE node.retired_at IS NULL
    ORDER BY node.id
    FOR NO KEY UPDATE OF node
), told AS (
    SELECT beat.id, beat.received_at, old_total, old_vendor, old_vram, old_ram, old_disk,
        CASE WHEN listened_to THEN beat.available_vram END AS available_vram,
        CASE WHEN listened_to THEN beat.total_vram END AS total_vram,
        CASE WHEN listened_to THEN beat.available_ram END AS available_ram,
        CASE WHEN listened_to THEN beat.available_disk END AS available_disk,
        CASE WHEN listened_to THEN beat.total_disk END AS total_disk,
        CASE WHEN listened_to THEN beat.gpu_vendor END AS gpu_vendor
    FROM heard JOIN beat ON beat.id = heard.id
), stored AS (
UPDATE nodes_backendnode node SET
    last_heartbeat = GREATEST(node.last_heartbeat, told.received_at),
    total_vram = COALESCE(told.total_vram, node.total_vram),
    vram_budget_bytes = LEAST(node.vram_budget_bytes, NULLIF(told.total_vram, 0)),
    available_vram = CASE WHEN told.available_vram IS NULL THEN node.available_vram ELSE LEAST(
        told.available_vram,
        NULLIF(LEAST(node.vram_budget_bytes, NULLIF(told.total_vram, 0)), 0)
    ) END,
    available_ram = COALESCE(told.available_ram, node.available_ram),
    available_disk = COALESCE(told.available_disk, node.available_disk),
    total_disk = COALESCE(told.total_disk, node.total_disk),
    gpu_vendor = COALESCE(told.gpu_vendor, node.gpu_vendor)
FROM told WHERE node.id = told.id
RETURNING node.id,
    COALESCE(told.total_vram <> told.old_total OR told.gpu_vendor <> told.old_vendor, false)
        AS other,
    node.available_vram - told.old_vram
        >= GREATEST(268435456, LEAST(1073741824, NULLIF(node.total_vram, 0) / 16))
    OR node.available_disk - told.old_disk
        >= GREATEST(268435456, LEAST(1073741824, NULLIF(node.total_disk, 0) / 16))
    OR (node.total_vram = 0 AND node.available_ram - told.old_ram
        >= GREATEST(268435456, LEAST(1073741824, NULLIF(node.total_ram, 0) / 16)))
        AS roomier
)
SELECT id, other, roomier FROM stored WHERE other OR roomier
"""

# Counting and starting a new window in one statement: two processes cannot both be the first.
# bulk_create's update_conflicts cannot express the CASE. Served by the primary key.
COUNT_REFUSAL = """
INSERT INTO nodes_failedattempt AS known (source, window_started_at, count)
VALUES (%(source)s, %(now)s, 1)
ON CONFLICT (source) DO UPDATE SET
    count = CASE WHEN known.window_started_at > %(window_began_after)s
        THEN known.count + 1 ELSE 1 END,
    window_started_at = CASE WHEN known.window_started_at > %(window_began_after)s
        THEN known.window_started_at ELSE EXCLUDED.window_started_at END
RETURNING count
"""
