import csv
import io
import json
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from backendops.models import Operation, OperationShare
from backendops.services import records
from backendops.services.records import Wanted
from backendops.states import OpState, Verb
from tests.api.clients import Caller, read
from tests.factories import NOW, make_node, make_op, make_operation

pytestmark = pytest.mark.django_db
HISTORY = "/api/operations/history"
MANY = 10_500


def ended(name: str, *, state: OpState = OpState.SUCCEEDED, **changes: Any) -> Operation:
    op = make_op(make_node(name), state=state, last_error="disk full", finished_at=NOW)
    return make_operation(op, acknowledged_at=NOW, acknowledged_by="ada", **changes)


def found(root: Caller, query: str) -> set[str]:
    reply = root.get(f"{HISTORY}?{query}")
    assert reply.status_code == 200, reply.content
    return {record["jobID"] for record in read(reply)["operations"]}


def test_row_58_the_record_is_found_by_what_people_remember(root: Caller) -> None:
    plain = ended("one", backend="llama-cpp", requested_by="ada")
    deleted = ended("two", backend="whisper", requested_by="bob", verb=Verb.DELETE, reason="old")
    failed = ended("three", backend="llama-cpp", state=OpState.DEAD, requested_by="bob")
    gone = ended(
        "four", state=OpState.CANCELLED, requested_at=NOW - timedelta(days=3), backend="piper"
    )
    every = {str(one.pk) for one in (plain, deleted, failed, gone)}
    assert found(root, "") == every
    for query, wanted in {
        "node=one": plain,
        f"node={deleted.ops.get().node_id}": deleted,
        "actor=ada": plain,
        "backend=piper": gone,
        "verb=delete": deleted,
        "outcome=failed": failed,
        "outcome=cancelled": gone,
        "until=2029-12-31T00:00:00Z": gone,
        "q=OLD": deleted,
        "q=whisp": deleted,
        "actor=bob&outcome=completed": deleted,
    }.items():
        assert found(root, query) == {str(wanted.pk)}, query
    assert found(root, "since=2030-01-01T00:00:00%2B00:00") == every - {str(gone.pk)}


@pytest.mark.parametrize(
    "query",
    [
        "outcome=perhaps",
        "verb=explode",
        "since=yesterday",
        "until=2030-01-01",
        "cursor=nonsense",
        "cursor=1.2",
        "cursor=99999999999999999999999.00000000-0000-0000-0000-000000000001",
        "limit=0",
        "limit=-1",
        "limit=many",
        "node=%00",
    ],
)
def test_a_filter_that_means_nothing_is_refused(root: Caller, query: str) -> None:
    assert root.get(f"{HISTORY}?{query}").status_code == 400


def test_pages_hold_everything_once_also_when_moments_are_equal(root: Caller) -> None:
    node = make_node()
    op = make_op(node, state=OpState.SUCCEEDED)
    all_ids = {str(make_operation(op, id=UUID(int=number)).pk) for number in range(1, 8)}
    seen: list[str] = []
    query = "limit=3"
    while query:
        page = read(root.get(f"{HISTORY}?{query}"))
        seen += [record["jobID"] for record in page["operations"]]
        query = f"limit=3&cursor={page['next']}" if page["next"] else ""
    assert len(seen) == 7
    assert set(seen) == all_ids


def test_row_58_ten_thousand_rows_are_paged_by_their_index_and_never_counted(
    root: Caller,
) -> None:
    op = make_op(make_node(), state=OpState.SUCCEEDED)
    made = Operation.objects.bulk_create(
        Operation(
            verb=Verb.INSTALL,
            backend="x",
            target="all nodes",
            requested_by="ada",
            requested_at=NOW - timedelta(seconds=number),
        )
        for number in range(MANY)
    )
    OperationShare.objects.bulk_create(OperationShare(operation=one, op=op) for one in made)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    first = read(root.get(HISTORY))
    with CaptureQueriesContext(
        connection,
    ) as captured:
        second = root.get(f"{HISTORY}?cursor={first['next']}")
    assert len(read(second)["operations"]) == 50
    assert not any("COUNT(" in query["sql"].upper() for query in captured)
    rows = records.find(Operation.objects.over(), Wanted())[:51]
    plan = rows.explain()
    assert "operation_newest" in plan, plan


def test_row_57_the_record_cannot_be_cleared_and_says_so(root: Caller) -> None:
    ended("one")
    reply = root.delete(HISTORY)
    assert (reply.status_code, read(reply)["code"]) == (409, "record_is_kept")
    assert "dismiss" in read(reply)["error"]
    assert len(found(root, "")) == 1


def test_what_is_under_way_or_needs_attention_is_not_in_the_record(root: Caller) -> None:
    make_operation(make_op(make_node("one")))
    make_operation(make_op(make_node("two"), state=OpState.DEAD))
    assert found(root, "") == set()


def test_an_export_has_a_row_for_each_node_and_no_formulas(root: Caller) -> None:
    ops = [make_op(make_node(name), state=OpState.SUCCEEDED) for name in ("one", "two")]
    make_operation(*ops, reason="=HYPERLINK(1)", requested_by="ada")
    reply = root.get("/api/operations/export?actor=ada")
    assert reply.headers["Content-Type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(reply.getvalue().decode())))
    assert [(row["node"], row["state"]) for row in rows] == [
        ("one", "succeeded"),
        ("two", "succeeded"),
    ]
    assert rows[0]["reason"] == "'=HYPERLINK(1)"
    told = json.loads(root.get("/api/operations/export?as=json").getvalue())
    assert [row["node"] for row in told] == ["one", "two"]
    assert told[0]["reason"] == "=HYPERLINK(1)"
    assert root.get("/api/operations/export?as=pdf").status_code == 400
