from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.urls import reverse

from backendops.models import Operation, PendingBackendOp
from backendops.presenting.timeline import MOST, timeline
from backendops.services import cancelling, nudging, redriving, settling
from backendops.states import OpState, Verb
from nodes.models import ClusterEvent
from nodes.services import events
from nodes.wire import InstalledBackend
from tests.backendops_admin.rows import fan_out, many_nodes
from tests.factories import NOW, make_node, make_op, make_operation

LATER = NOW + timedelta(minutes=4)


def page_of(browser: Client, operation: Operation) -> Any:
    return browser.get(reverse("admin:backendops_operation_change", args=[operation.pk]))


def told(operation: Operation) -> list[tuple[str, str]]:
    return [(one.what, one.node) for one in timeline(operation).moments]


def test_what_happened_tells_of_every_node_newest_first(root: Client) -> None:
    a, b, c = (make_op(make_node(name), state=OpState.RUNNING) for name in "abc")
    operation = make_operation(a, b, c)
    settling.succeeded(a, now=NOW)
    settling.failed(b, "disk full", now=NOW)
    settling.failed(c, "no such backend", now=NOW, for_good=True)
    nudging.try_now(b, by="ada", now=NOW)
    redriving.redrive([c], by="ada", now=NOW)
    cancelling.cancel_op(b, by="ada", now=NOW, reason="enough")
    assert told(operation) == [
        ("Cancelled", "b"),
        ("Put back into the queue", "c"),
        ("Told to try now", "b"),
        ("Given up", "c"),
        ("Failed, to be tried again", "b"),
        ("Installed", "a"),
    ]
    text = page_of(root, operation).content.decode()
    assert "Given up on c" in text
    assert "enough" in text


def test_an_op_that_serves_two_operations_is_told_in_both_and_in_no_third(root: Client) -> None:
    op, other = (make_op(make_node(name), state=OpState.RUNNING) for name in "ab")
    first, second, third = make_operation(op), make_operation(op), make_operation(other)
    settling.succeeded(op, now=NOW)
    assert told(first) == told(second) == [("Installed", "a")]
    assert told(third) == []


@pytest.mark.parametrize("nodes", [2, 300])
def test_the_story_costs_two_queries_and_is_cut_aloud(
    root: Client, django_assert_num_queries: Any, nodes: int
) -> None:
    operation = fan_out(many_nodes(nodes), state=OpState.SUCCEEDED)
    events.record_all(
        events.build("backend.installed", actor="t", now=NOW, node=op.node, after={"op": op.pk})
        for op in operation.ops.select_related("node")
    )
    with django_assert_num_queries(2):
        story = timeline(operation)
    assert (len(story.moments), story.cut) == (min(nodes, MOST), nodes > MOST)


def test_events_of_an_op_are_found_by_their_index(db: None) -> None:
    op = make_op(make_node("a"))
    events.record("op.nudged", actor="t", now=NOW, node=op.node, after={"op": op.pk})
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_sort = off")
        cursor.execute(
            "EXPLAIN SELECT id FROM nodes_clusterevent"
            " WHERE after ? 'op' AND (after ->> 'op') = '1'"
        )
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert "event_of_op" in plan
    assert ClusterEvent.objects.filter(after__op=op.pk).exists()


def test_each_node_tells_the_version_it_has_now_and_what_it_had(root: Client) -> None:
    op = make_op(
        make_node("a"),
        state=OpState.RUNNING,
        verb=Verb.UPGRADE,
        before={"there": True, "version": "1.0"},
    )
    fresh = make_op(make_node("b"), state=OpState.RUNNING)
    plain = make_op(make_node("c"), state=OpState.RUNNING, verb=Verb.STOP)
    there = InstalledBackend(name="x", is_system=False, is_meta=False)
    settling.succeeded(op, now=LATER, there=replace(there, version="1.1"))
    settling.succeeded(fresh, now=LATER, there=replace(there, digest=f"sha256:{32 * 'a'}"))
    settling.succeeded(plain, now=LATER)
    page = page_of(root, make_operation(op, fresh, plain))
    notes = {share.op.node.name: share.notes for share, _ in page.context["rows"]}
    assert notes == {"a": ["1.0 → 1.1"], "b": [f"Version {12 * 'a'}"], "c": []}
    assert PendingBackendOp.objects.get(pk=op.pk).after["version"] == "1.1"


def test_what_is_over_tells_when_it_ended_and_how_long_it_took(root: Client) -> None:
    done = make_op(make_node("a"), state=OpState.SUCCEEDED, finished_at=LATER)
    under_way = make_op(make_node("b"), state=OpState.RUNNING)
    over = page_of(root, make_operation(done))
    assert over.context["line"].took == "4 min"
    assert f"finished {LATER:%Y-%m-%d %H:%M:%S} UTC" in over.content.decode()
    assert page_of(root, make_operation(done, under_way)).context["line"].took == ""


def test_a_share_that_somebody_cancelled_does_not_make_the_rest_a_failure(root: Client) -> None:
    done = make_op(make_node("a"), state=OpState.SUCCEEDED)
    gone = make_op(make_node("b"), state=OpState.CANCELLED)
    line = page_of(root, make_operation(done, gone)).context["line"]
    assert (line.state, line.label) == ("partly_cancelled", "succeeded, 1 cancelled")
    assert line.headline == "Installed llama-cpp, but cancelled on 1 node"
    assert line.bar.tone == "idle"
    assert not line.roll.needs_attention


def test_the_way_out_of_a_cancel_dialog_is_not_called_cancel(root: Client) -> None:
    op = make_op(make_node("a"), state=OpState.RUNNING)
    operation = make_operation(op)
    for row in (operation, op):
        url = reverse(f"admin:backendops_{row._meta.model_name}_cancel", args=[row.pk])
        dialog = root.get(url).content.decode()
        assert ">Keep it running</button>" in dialog
        assert ">Cancel</button>" not in dialog
