from datetime import timedelta

import pytest

from nodes.models import BackendNode
from nodes.services import lifecycle, registration
from tests.factories import NOW, make_node, make_request, make_token

pytestmark = pytest.mark.django_db
MINUTE = timedelta(minutes=1)


def test_a_worker_that_restarts_again_and_again_is_quarantined_with_a_reason() -> None:
    token = make_token()
    node = make_node(join_token=token, boot_id="0")
    for number in range(1, 4):
        request = make_request(boot_id=str(number))
        registration.register(request, token=token, now=NOW + number * MINUTE)
    node.refresh_from_db()
    assert node.quarantined_until == NOW + 13 * MINUTE
    assert "3 times back" in node.quarantine_reason
    assert not BackendNode.objects.schedulable().exists()
    event = node.events.get(kind="node.quarantined")
    assert (event.actor, event.severity) == ("system", "attention")


def test_leaving_and_coming_back_counts_as_well() -> None:
    token = make_token()
    node = make_node(join_token=token)
    for number in range(3):
        lifecycle.leave(node, now=NOW + number * MINUTE)
        registration.register(make_request(), token=token, now=NOW + number * MINUTE)
    node.refresh_from_db()
    assert node.quarantined_until is not None


def test_two_restarts_or_slow_ones_are_forgiven() -> None:
    token = make_token()
    node = make_node(join_token=token, boot_id="0")
    for number in range(1, 5):
        request = make_request(boot_id=str(number))
        registration.register(request, token=token, now=NOW + number * 6 * MINUTE)
    node.refresh_from_db()
    assert node.quarantined_until is None


def test_a_renewal_of_credentials_is_no_return() -> None:
    token = make_token()
    node = make_node(join_token=token, boot_id="a")
    for number in range(5):
        registration.register(make_request(boot_id="a"), token=token, now=NOW + number * MINUTE)
    node.refresh_from_db()
    assert node.recoveries == []
