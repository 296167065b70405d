"""The record as a file, node by node: CSV or JSON, sent while it is being read."""

import csv
import io
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.db import connection
from django.http import HttpRequest, StreamingHttpResponse

from backendops.models import OperationShare
from backendops.querysets import OperationQuerySet
from backendops.services import records
from clustermgr.lib.errors import InvalidInput

COLUMNS = (
    "operation",
    "requested_at",
    "requested_by",
    "verb",
    "backend",
    "uri",
    "target",
    "reason",
    "node",
    "state",
    "attempts",
    "error",
    "note",
    "started_at",
    "finished_at",
    "acknowledged_by",
    "version",
)
TYPES = {"csv": "text/csv; charset=utf-8", "json": "application/json"}
# What a spreadsheet would compute instead of showing
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def response(request: HttpRequest, rows: OperationQuerySet, *, kind: str) -> StreamingHttpResponse:
    """A download of these operations; no more than a page of it is ever in memory."""
    if kind not in TYPES:
        raise InvalidInput("An export is csv or json.")
    parts = (_csv if kind == "csv" else _json)(_pages(rows))
    return StreamingHttpResponse(
        _in_turn(parts) if isinstance(request, ASGIRequest) else parts,
        content_type=TYPES[kind],
        headers={"Content-Disposition": f'attachment; filename="operations.{kind}"'},
    )


async def _in_turn(parts: Iterator[str]) -> AsyncIterator[str]:
    """The same for a server that would read it all before it sends anything."""
    while (part := await sync_to_async(_next)(parts)) is not None:
        yield part


def _next(parts: Iterator[str]) -> str | None:
    try:
        return next(parts, None)
    finally:
        connection.close()  # a slow reader must not keep one


def _pages(rows: OperationQuerySet) -> Iterator[list[list[Any]]]:
    page = records.shares(rows)
    while page:
        yield [_row(share) for share in page]
        page = records.shares(rows, after=page[-1])


def _row(share: OperationShare) -> list[Any]:
    operation, op = share.operation, share.op
    return [
        str(operation.pk),
        operation.requested_at.isoformat(),
        operation.requested_by,
        op.verb,
        operation.backend,
        operation.uri,
        operation.target,
        operation.reason,
        op.node.name,
        op.state,
        op.attempts,
        op.last_error,
        op.note,
        op.started_at.isoformat() if op.started_at else "",
        op.finished_at.isoformat() if op.finished_at else "",
        operation.acknowledged_by,
        op.after.get("version", ""),
    ]


def _csv(pages: Iterator[list[list[Any]]]) -> Iterator[str]:
    yield _lines([COLUMNS])
    for page in pages:
        yield _lines([[_harmless(cell) for cell in row] for row in page])


def _lines(table: Sequence[Sequence[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(table)
    return text.getvalue()


def _harmless(cell: Any) -> Any:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA) else cell


def _json(pages: Iterator[list[list[Any]]]) -> Iterator[str]:
    before = "["
    for page in pages:
        yield before + ",\n".join(json.dumps(dict(zip(COLUMNS, row, strict=True))) for row in page)
        before = ",\n"
    yield "]" if before != "[" else "[]"
