from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from backendops.models import Operation
from backendops.states import OperationState, OpState, Verb
from tests.backendops_admin.rows import fan_out, many_nodes
from tests.factories import NOW, make_node, make_op, make_operation

LIST = reverse("admin:backendops_operation_changelist")
LIVE = reverse("admin:operations_live")


def backends(page: Any) -> list[str]:
    return [operation.backend for operation in page.context["cl"].result_list]


@pytest.mark.parametrize(("operations", "nodes"), [(3, 2), (50, 2), (3, 1000)])
def test_costs_the_same_queries_for_few_and_for_many(
    queries: Callable[[str, int], None], operations: int, nodes: int
) -> None:
    fleet = many_nodes(nodes)
    for number in range(operations):
        fan_out(fleet, f"b-{number:02}", state=OpState.RUNNING, percentage=5.0)
    queries(LIST, 10)


@pytest.mark.parametrize("nodes", [2, 1000])
def test_a_refresh_costs_the_same_queries_for_few_and_for_many(
    queries: Callable[[str, int], None], nodes: int
) -> None:
    operation = fan_out(many_nodes(nodes), state=OpState.RUNNING)
    queries(f"{LIVE}?rows={operation.pk}", 7)


def test_row_58_the_history_is_paged_without_being_counted(root: Client) -> None:
    Operation.objects.bulk_create(
        Operation(
            verb=Verb.INSTALL,
            backend=f"b-{number}",
            target="all",
            requested_by="ada",
            requested_at=NOW - timedelta(minutes=number),
        )
        for number in range(120)
    )
    with CaptureQueriesContext(
        connection,
    ) as seen:
        page = root.get(LIST, {"p": 2})
    assert backends(page)[0] == "b-50"
    counts = [one["sql"] for one in seen if "COUNT(*)" in one["sql"]]
    assert not [sql for sql in counts if "backendops_operation" in sql]


def test_row_58_narrows_by_state_verb_backend_node_actor_and_date(root: Client) -> None:
    node, other = make_node("gpu-1"), make_node("gpu-2")
    make_operation(make_op(node, "a", state=OpState.RUNNING), backend="a", requested_by="ada")
    make_operation(
        make_op(other, "b", state=OpState.SUCCEEDED, verb=Verb.DELETE),
        backend="b",
        verb=Verb.DELETE,
        requested_at=NOW - timedelta(days=9),
    )
    assert backends(root.get(LIST, {"state": "running"})) == ["a"]
    assert backends(root.get(LIST, {"state": "live"})) == ["a"]
    assert backends(root.get(LIST, {"verb__exact": "delete"})) == ["b"]
    assert backends(root.get(LIST, {"backend": "B"})) == ["b"]
    assert backends(root.get(LIST, {"node": "gpu-2"})) == ["b"]
    assert backends(root.get(LIST, {"actor": "ad"})) == ["a"]
    assert backends(root.get(LIST, {"q": "ada"})) == ["a"]
    assert backends(root.get(LIST, {"requested_at_from": "2029-12-31"})) == ["a"]
    assert backends(root.get(LIST, {"requested_at_to": "2029-12-23"})) == ["b"]
    assert backends(root.get(LIST, {"requested_at_to": "2030-01-01"})) == ["a", "b"]


@pytest.mark.parametrize("name", ["state", "backend", "node", "actor", "requested_at_from"])
def test_nonsense_in_the_address_is_no_error(root: Client, name: str) -> None:
    make_operation(make_op(make_node()))
    assert root.get(LIST, {name: "non\x00sense"}).status_code == 200


def test_the_filter_and_the_chip_say_the_same(root: Client) -> None:
    for state in OpState:
        op = make_op(make_node(f"gpu-{state}"), state.value, state=state)
        make_operation(op, backend=state.value)
    chips = {row.backend: row.line.state for row in root.get(LIST).context["cl"].result_list}
    assert chips.keys() == set(OpState)
    for wanted in OperationState:
        found = backends(root.get(LIST, {"state": wanted.value}))
        assert set(found) == {name for name, chip in chips.items() if chip == wanted.value}


def test_row_13_what_waits_is_called_queued_and_has_no_bar(root: Client) -> None:
    node = make_node()
    make_operation(make_op(node, "first", state=OpState.RUNNING), backend="first")
    make_operation(make_op(node, "second"), backend="second", requested_at=NOW + timedelta(1))
    second, first = root.get(LIST).context["cl"].result_list
    assert (second.line.state, second.line.bar) == ("queued", None)
    assert second.line.place == "second in line, behind install of first"
    assert first.line.bar.percent == 0


def test_a_bar_at_nothing_is_still_a_bar(root: Client) -> None:
    make_operation(make_op(make_node(), state=OpState.RUNNING))
    text = root.get(LIST).content.decode()
    assert 'role="progressbar"' in text
    assert 'aria-valuenow="0"' in text


def test_a_refresh_sends_cells_by_their_ids(root: Client) -> None:
    operation = make_operation(make_op(make_node(), state=OpState.RUNNING, percentage=42.0))
    text = root.get(LIVE, {"rows": str(operation.pk)}).content.decode()
    assert f'id="o-{operation.pk}-progress"' in text
    assert 'aria-valuenow="42"' in text
    assert 'hx-swap-oob="true"' in text


@pytest.mark.parametrize("asked", ["rows=x,\x00", "ops=1,x,99999999999999999999", "operation=zz"])
def test_a_senseless_refresh_is_answered_with_the_strip_alone(root: Client, asked: str) -> None:
    name, value = asked.split("=")
    reply = root.get(LIVE, {name: value, "seen": "yesterday"})
    assert reply.status_code == 200
    assert 'id="strip"' in reply.content.decode()


def test_an_empty_history_says_what_to_do_next(root: Client) -> None:
    text = root.get(LIST).content.decode()
    assert "Nobody has ordered anything yet" in text
    assert reverse("admin:backendops_operation_install") in text


def test_a_success_on_fewer_nodes_tells_what_became_of_the_others(root: Client) -> None:
    done = make_op(make_node("a"), state=OpState.SUCCEEDED)
    make_operation(done, make_op(make_node("b"), state=OpState.SUPERSEDED))
    text = root.get(LIST).content.decode()
    assert "1 of 2" in text
    assert "1 superseded" in text


def test_an_empty_list_offers_an_order_only_to_who_may_give_one(
    root: Client, viewer: Client
) -> None:
    assert "Install a backend" in root.get(LIST).content.decode()
    text = viewer.get(LIST).content.decode()
    assert "Nobody has ordered anything yet" in text
    assert "Install a backend" not in text
