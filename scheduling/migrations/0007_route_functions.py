from django.db import migrations

from scheduling import routefunctions

DROP_TAKE = """
DROP FUNCTION route_take(
    text, uuid[], text[], timestamptz[], text[], uuid[], text[], uuid[], integer,
    double precision, uuid[], text, uuid[], timestamptz
)
"""
DROP_RELEASE = "DROP FUNCTION route_release(uuid[], timestamptz)"

# Leases come and go by the thousand: the dead ones must not pile up between two visits
KEEP_SMALL = """
ALTER TABLE scheduling_routelease SET (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000
)
"""
AS_IT_WAS = """
ALTER TABLE scheduling_routelease RESET (
    autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold,
    autovacuum_vacuum_insert_scale_factor, autovacuum_vacuum_insert_threshold
)
"""


class Migration(migrations.Migration):
    dependencies = [("scheduling", "0006_rolling"), ("nodes", "0009_withdrawn_replicas")]

    operations = [
        migrations.RunSQL(routefunctions.TAKE, DROP_TAKE),
        migrations.RunSQL(routefunctions.RELEASE, DROP_RELEASE),
        migrations.RunSQL(KEEP_SMALL, AS_IT_WAS),
    ]
