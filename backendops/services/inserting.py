"""Writes the shares of an order in two statements, whatever the number of nodes.

Django's bulk_create sends each of 34 columns for each node, nearly all of them the same: for a
thousand nodes that was most of the time an order took.
"""

from collections.abc import Sequence
from uuid import UUID

from django.db import connection

from backendops.models import PendingBackendOp

COMPUTED = {"node_id": "node", "change": "nextval('backendops_change')"}
SHARES = """
    INSERT INTO backendops_operationshare (operation_id, op_id)
    SELECT %s, op FROM unnest(%s::bigint[]) AS op
"""


def insert_ops(pattern: PendingBackendOp, *, nodes: Sequence[UUID]) -> list[int]:
    """A row like `pattern` for each node, and its id; the same constraints hold as for one."""
    fields = [field for field in pattern._meta.concrete_fields if not field.primary_key]
    sent = [field for field in fields if field.column not in COMPUTED]
    values = [field.get_db_prep_save(getattr(pattern, field.attname), connection) for field in sent]
    columns = ", ".join([*(f'"{field.column}"' for field in sent), *COMPUTED])
    places = ", ".join([*("%s" for _ in sent), *COMPUTED.values()])
    statement = (
        f"INSERT INTO {pattern._meta.db_table} ({columns}) SELECT {places}"  # noqa: S608
        " FROM unnest(%s::uuid[]) AS node RETURNING id"
    )
    with connection.cursor() as cursor:
        cursor.execute(statement, [*values, list(nodes)])
        return [row[0] for row in cursor.fetchall()]


def insert_shares(operation: UUID, ops: Sequence[int]) -> None:
    """Let the operation consist of these ops."""
    with connection.cursor() as cursor:
        cursor.execute(SHARES, [operation, list(ops)])
