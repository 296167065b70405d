"""Writes the shares of an order in one statement, whatever the number of nodes.

Django's bulk_create sends each of 34 columns for each node, nearly all of them the same: for a
thousand nodes that was most of the time an order took.
"""

from collections.abc import Sequence
from uuid import UUID

from django.db import connection

from backendops.models import PendingBackendOp

COMPUTED = {"node_id": "node", "change": "nextval('backendops_change')"}


def insert(
    operation: UUID, pattern: PendingBackendOp, *, nodes: Sequence[UUID], joined: Sequence[int]
) -> None:
    """Let the operation consist of an op like `pattern` for each node, and of those it joins.

    The same constraints hold as for one row.
    """
    fields = [field for field in pattern._meta.concrete_fields if not field.primary_key]
    sent = [field for field in fields if field.column not in COMPUTED]
    values = [field.get_db_prep_save(getattr(pattern, field.attname), connection) for field in sent]
    columns = ", ".join([*(f'"{field.column}"' for field in sent), *COMPUTED])
    places = ", ".join([*("%s" for _ in sent), *COMPUTED.values()])
    statement = f"""
        WITH fresh AS (
            INSERT INTO backendops_pendingbackendop ({columns})
            SELECT {places} FROM unnest(%s::uuid[]) AS node RETURNING id
        )
        INSERT INTO backendops_operationshare (operation_id, op_id)
        SELECT %s, id FROM fresh UNION ALL SELECT %s, unnest(%s::bigint[])
    """  # noqa: S608
    with connection.cursor() as cursor:
        cursor.execute(statement, [*values, list(nodes), operation, operation, list(joined)])
