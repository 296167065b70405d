"""Who waits for whom, in the database of this process: others of the test run have theirs."""

from django.db import connection

WAITING = """
SELECT count(DISTINCT pid) FROM pg_locks JOIN pg_stat_activity USING (pid)
 WHERE NOT granted AND datname = current_database()
"""


def waiting() -> int:
    """How many sessions wait for a lock."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")  # kept for the length of a transaction
        cursor.execute(WAITING)
        (count,) = cursor.fetchone()
    return int(count)
