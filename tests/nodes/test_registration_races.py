from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from django.db import connection

from clustermgr.lib.errors import Forbidden, InvalidMove
from nodes.models import BackendNode, ClusterEvent
from nodes.services import environment, registration
from tests.factories import NOW, make_pending, make_request, make_token

pytestmark = pytest.mark.django_db(transaction=True)


def at_once(times: int, act: Callable[[int], Any]) -> list[Any]:
    """Run `act(0..)` in threads that start together; refusals are results too."""
    start = Barrier(times)

    def run(number: int) -> Any:
        start.wait()
        try:
            return act(number)
        except (Forbidden, InvalidMove) as refusal:
            return refusal
        finally:
            connection.close()

    with ThreadPoolExecutor(times) as threads:
        return list(threads.map(run, range(times)))


def test_fifty_registrations_of_one_name_make_one_row() -> None:
    token = make_token()
    nodes = at_once(50, lambda number: registration.register(make_request(), token=token, now=NOW))
    node = BackendNode.objects.get()
    assert {found.pk for found in nodes} == {node.pk}
    assert node.events.filter(kind="node.registered").count() == 1
    assert not node.events.filter(kind="node.reregistered").exists()  # nothing had changed


def test_a_token_for_three_nodes_is_not_overdrawn_by_ten_at_once() -> None:
    token = make_token(max_nodes=3)
    results = at_once(
        10,
        lambda number: registration.register(make_request(f"gpu-{number}"), token=token, now=NOW),
    )
    assert BackendNode.objects.count() == 3
    assert sum(isinstance(result, Forbidden) for result in results) == 7


def test_a_one_machine_token_binds_to_one_of_ten_names() -> None:
    token = make_token(one_machine=True)
    at_once(
        10,
        lambda number: registration.register(make_request(f"gpu-{number}"), token=token, now=NOW),
    )
    node = BackendNode.objects.get()
    token.refresh_from_db()
    assert token.bound_name == node.name


def test_of_ten_approvals_one_counts() -> None:
    pk = make_pending().pk
    results = at_once(
        10,
        lambda number: registration.approve(
            BackendNode.objects.get(pk=pk), by=f"operator-{number}", now=NOW
        ),
    )
    assert sum(isinstance(result, InvalidMove) for result in results) == 9
    assert ClusterEvent.objects.filter(kind="node.approved").count() == 1


def test_processes_that_start_together_make_one_environment_token() -> None:
    tokens = at_once(10, lambda number: environment.sync("s3cret", auto_approve=False, now=NOW))
    assert len({token.pk for token in tokens}) == 1
