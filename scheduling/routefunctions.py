"""The pick and the release, each one statement to its caller.

Functions, because PostgreSQL keeps their plans per connection: planning the pick takes longer
than carrying it out. Replicas are locked before leases, and in the order of their ids, by
everybody; node rows are never locked, so a heartbeat does not wait for a request.

This is their text as of now. Whoever changes it adds a migration that puts it in place again, as
0008 does.
"""

# Who may serve: NodeModelQuerySet.serving() and what this caller wants or does not
ELIGIBLE = """
    r.model_name = p_model AND r.state = 'loaded'
    AND r.suspect_since IS NULL AND r.outdated_at IS NULL AND r.withdrawn_at IS NULL
    AND n.approved_at IS NOT NULL AND n.retired_at IS NULL
    AND n.liveness = 'healthy'
    AND (p_revision IS NULL OR r.config_revision = p_revision)
    AND (p_barred IS NULL OR r.node_id <> ALL(p_barred))
    AND (p_excluded IS NULL OR r.id <> ALL(p_excluded))
"""

# Everything here is a handful of rows by their keys. The planner takes arrays for a hundred rows
# and the table of leases for an empty one, and would read all replicas or all dead leases. And
# it would plan the pick anew for every request, which takes three times as long as the pick.
BY_INDEX = """
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan
"""


def _filled(statement: str) -> str:
    return statement.replace("{eligible}", ELIGIBLE).replace("{by_index}", BY_INDEX)


TAKE = _filled("""
CREATE OR REPLACE FUNCTION route_take(
    p_model text,
    p_leases uuid[], p_holders text[], p_untils timestamptz[],
    p_kinds text[], p_hots uuid[], p_sessions text[],
    p_cold uuid[], p_abs integer, p_rel double precision,
    p_barred uuid[], p_revision text, p_excluded uuid[], p_now timestamptz
) RETURNS TABLE (
    lease uuid, replica uuid, node uuid, node_name text, address text, replica_index integer,
    revision text, how text, load integer, lowest integer, candidates integer, missed boolean,
    hot_load integer
) LANGUAGE plpgsql {by_index} AS $$
#variable_conflict use_column
DECLARE
    v_wanted integer := cardinality(p_leases);
    v_ids uuid[];
    v_nodes uuid[];
    v_slots integer[];
    v_loads integer[];
    v_welcome integer;
    v_id uuid;
    v_load integer;
    v_floor integer;
    v_least integer;
    v_pick integer;
    v_hot integer;
    v_plain integer[] := '{}';
    v_top integer;
    v_filled integer[];
    v_picks integer[] := array_fill(NULL::integer, ARRAY[v_wanted]);
    v_before integer[] := array_fill(NULL::integer, ARRAY[v_wanted]);
    v_leasts integer[] := array_fill(NULL::integer, ARRAY[v_wanted]);
    v_hows text[] := p_kinds;
    v_missed boolean[] := array_fill(false, ARRAY[v_wanted]);
    v_hot_loads integer[] := array_fill(NULL::integer, ARRAY[v_wanted]);
BEGIN
    IF v_wanted = 1 AND p_kinds[1] = 'plain' AND p_hots[1] IS NULL THEN
        -- The least busy that nobody is just taking; but rather wait for it than take one that
        -- has two requests more: where many pick at once the busy ones would become busier.
        -- What was counted may be old when the row is ours. Then once more: nothing here waits,
        -- so what is held meanwhile is in nobody's way for long.
        FOR i IN 1..3 LOOP
            WITH pool AS MATERIALIZED (
                SELECT r.id, r.in_flight, r.last_used, n.available_vram
                FROM nodes_nodemodel r JOIN nodes_backendnode n ON n.id = r.node_id
                WHERE {eligible}
                    AND (r.ejected_until IS NULL OR r.ejected_until <= p_now)
            )
            SELECT r.id, r.in_flight, near.floor INTO v_id, v_load, v_floor
            FROM (SELECT pool.*, min(in_flight) OVER () AS floor FROM pool) near
            JOIN nodes_nodemodel r ON r.id = near.id
            WHERE near.in_flight <= near.floor + 1
                AND r.state = 'loaded' AND r.suspect_since IS NULL
                AND r.outdated_at IS NULL AND r.withdrawn_at IS NULL
            ORDER BY near.in_flight, near.last_used NULLS FIRST, near.available_vram DESC, near.id
            LIMIT 1
            FOR NO KEY UPDATE OF r SKIP LOCKED;
            EXIT WHEN NOT FOUND;
            v_ids := ARRAY[v_id];
            v_loads := ARRAY[v_load];
            v_picks[1] := 1;
            v_before[1] := v_load;
            v_leasts[1] := v_floor;
            EXIT WHEN v_load <= v_floor + 1;
        END LOOP;
    END IF;

    IF v_picks[1] IS NULL THEN
        -- All of them, after whoever has them: what is then read is what is, and in order
        SELECT array_agg(h.id ORDER BY h.rank), array_agg(h.node_id ORDER BY h.rank),
            array_agg(h.replica_index ORDER BY h.rank), array_agg(h.in_flight ORDER BY h.rank),
            count(*) FILTER (WHERE NOT h.ejected)
        INTO v_ids, v_nodes, v_slots, v_loads, v_welcome
        FROM (
            SELECT held.*, row_number() OVER (
                ORDER BY held.ejected, held.last_used NULLS FIRST, held.vram DESC, held.id
            ) AS rank
            FROM (
                SELECT r.id, r.node_id, r.replica_index, r.in_flight, r.last_used,
                    n.available_vram AS vram,
                    r.ejected_until IS NOT NULL AND r.ejected_until > p_now AS ejected
                FROM nodes_nodemodel r JOIN nodes_backendnode n ON n.id = r.node_id
                WHERE {eligible}
                ORDER BY r.id
                FOR NO KEY UPDATE OF r
            ) held
        ) h;
        IF v_ids IS NULL THEN
            RETURN;
        END IF;
        -- An ejected replica is better than none, and worse than any other
        IF v_welcome > 0 THEN
            v_ids := v_ids[1:v_welcome];
            v_nodes := v_nodes[1:v_welcome];
            v_slots := v_slots[1:v_welcome];
            v_loads := v_loads[1:v_welcome];
        END IF;

        FOR i IN 1..v_wanted LOOP
            -- Told even where it decides nothing: somebody compares
            v_hot_loads[i] := v_loads[array_position(v_ids, p_hots[i])];
            IF p_kinds[i] = 'plain' THEN
                v_plain := v_plain || i;
                CONTINUE;
            END IF;
            v_least := (SELECT min(x) FROM unnest(v_loads) x);
            v_hot := CASE
                WHEN p_kinds[i] = 'session' THEN (
                    -- Every process picks the same one, and few move when a replica comes or goes
                    SELECT u.place FROM unnest(v_ids) WITH ORDINALITY u (id, place)
                    ORDER BY md5(p_sessions[i] || u.id::text) LIMIT 1
                )
                ELSE array_position(v_ids, p_hots[i])
            END;
            v_pick := CASE WHEN v_loads[v_hot] <= v_least + p_abs
                AND v_loads[v_hot] <= v_least * p_rel + 1 THEN v_hot END;
            IF v_pick IS NULL THEN
                v_missed[i] := v_hot IS NOT NULL;
                v_hows[i] := p_kinds[i] || '-cold';
                SELECT u.place INTO v_pick
                FROM unnest(v_ids, v_nodes, v_slots, v_loads)
                    WITH ORDINALITY u (id, node_id, slot, load, place)
                ORDER BY
                    -- The guard first: beyond it, only how busy they are counts
                    u.load > v_least + p_abs OR u.load > v_least * p_rel + 1,
                    CASE WHEN p_kinds[i] = 'session' THEN u.load
                        WHEN u.load > v_least + p_abs OR u.load > v_least * p_rel + 1 THEN u.load
                        ELSE coalesce(array_position(p_cold, u.id), 0) END,
                    u.node_id, u.slot
                LIMIT 1;
            END IF;
            v_picks[i] := v_pick;
            v_before[i] := v_loads[v_pick];
            v_leasts[i] := v_least;
            v_loads[v_pick] := v_loads[v_pick] + 1;
        END LOOP;

        IF cardinality(v_plain) > 0 THEN
            -- As if one after the other took the least busy: filled level by level, and within
            -- a level first who was not taken yet. None is filled higher than if the least busy
            -- of them, so many as are wanted, had shared the requests evenly.
            v_pick := least(cardinality(v_plain), cardinality(v_loads));
            v_top := (SELECT x FROM unnest(v_loads) x ORDER BY x OFFSET v_pick - 1 LIMIT 1)
                + ceil(cardinality(v_plain)::numeric / v_pick)::integer - 1;
            SELECT array_agg(w.place ORDER BY w.level, w.more, w.place) INTO v_filled
            FROM (
                SELECT u.place, u.load + more AS level, more
                FROM unnest(v_loads) WITH ORDINALITY u (load, place),
                    generate_series(0, least(v_top - u.load, cardinality(v_plain) - 1)) more
                ORDER BY level, more, u.place
                LIMIT cardinality(v_plain)
            ) w;
            FOR i IN 1..cardinality(v_plain) LOOP
                v_pick := v_filled[i];
                v_picks[v_plain[i]] := v_pick;
                v_before[v_plain[i]] := v_loads[v_pick];
                v_leasts[v_plain[i]] := v_loads[v_pick];
                v_loads[v_pick] := v_loads[v_pick] + 1;
            END LOOP;
        END IF;
    END IF;

    UPDATE nodes_nodemodel r
    SET in_flight = r.in_flight + more.n, last_used = p_now
    FROM (SELECT v_ids[p] AS id, count(*) AS n FROM unnest(v_picks) p GROUP BY 1) more
    WHERE r.id = more.id;

    INSERT INTO scheduling_routelease (id, replica_id, holder, granted_at, expires_at)
    SELECT u.id, v_ids[u.pick], u.holder, p_now, u.until
    FROM unnest(p_leases, v_picks, p_holders, p_untils) u (id, pick, holder, until);

    RETURN QUERY
    SELECT u.id, r.id, n.id, n.name::text, r.address::text, r.replica_index,
        r.config_revision::text, u.how, u.load, u.least, cardinality(v_ids), u.missed,
        u.hot_load
    FROM unnest(p_leases, v_picks, v_hows, v_before, v_leasts, v_missed, v_hot_loads)
        u (id, pick, how, load, least, missed, hot_load)
    JOIN nodes_nodemodel r ON r.id = v_ids[u.pick]
    JOIN nodes_backendnode n ON n.id = r.node_id;
END $$
""")

RELEASE = _filled("""
CREATE OR REPLACE FUNCTION route_release(p_leases uuid[], p_expired_by timestamptz)
RETURNS TABLE (lease uuid, replica uuid) LANGUAGE plpgsql {by_index} AS $$
#variable_conflict use_column
BEGIN
    PERFORM 1 FROM nodes_nodemodel r
    WHERE r.id IN (SELECT l.replica_id FROM scheduling_routelease l WHERE l.id = ANY(p_leases))
    ORDER BY r.id
    FOR NO KEY UPDATE OF r;
    RETURN QUERY
    WITH gone AS (
        DELETE FROM scheduling_routelease l
        WHERE l.id = ANY(p_leases) AND (p_expired_by IS NULL OR l.expires_at <= p_expired_by)
        RETURNING l.id, l.replica_id
    ), freed AS (
        UPDATE nodes_nodemodel r SET in_flight = r.in_flight - less.n
        FROM (SELECT replica_id, count(*) AS n FROM gone GROUP BY replica_id) less
        WHERE r.id = less.replica_id
    )
    SELECT g.id, g.replica_id FROM gone g;
END $$
""")
