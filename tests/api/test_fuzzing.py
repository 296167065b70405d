"""Whatever the schema allows, and much that it does not, is answered: never with a 5xx."""

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
import schemathesis
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import SearchStrategy
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

from backendops.models import NodeBackend, NodeInventory
from backendops.states import OpState
from nodes.models import JoinToken
from tests.api.clients import SECRET, Caller
from tests.factories import (
    NOW,
    make_job,
    make_model,
    make_node,
    make_op,
    make_operation,
    make_replica,
    make_rule,
)

NODE = UUID(int=1)
JOB = UUID(int=2)
# The last three keep the description honest: it says everything that can be answered
CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]
SETTINGS = settings(
    max_examples=5,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture
def secrets(root: Caller, environment_token: JoinToken) -> Callable[[str], str]:
    """The token that opens a path, in a cluster where there is something to hit."""
    # Without an HTTP server: that a worker cannot be reached is a 502, and no fault of ours
    # With room: that there is none is a 503, and no fault of ours either
    node = make_node(
        id=NODE, join_token=environment_token, http_address="", max_replicas_per_model=9
    )
    make_replica(node)
    NodeInventory.objects.create(node=node, observed_at=NOW)
    NodeBackend.objects.create(node=node, name="llama-cpp", first_seen_at=NOW, observed_at=NOW)
    make_model()
    make_rule(min_replicas=2, max_replicas=3)
    make_job(node, index=1)
    dead = make_op(node, state=OpState.DEAD, last_error="disk full")
    make_operation(make_op(node, "whisper"), dead, id=JOB)
    return lambda path: SECRET if path.startswith("/api/node/") else root.secret


@pytest.fixture
def described(root: Caller, secrets: Any) -> Iterator[Any]:
    # As Django's own test client does: a finished request must not end the test's transaction
    ends = (request_started, request_finished)
    for end in ends:
        end.disconnect(close_old_connections)
    headers = {"Authorization": f"Bearer {root.secret}"}
    yield schemathesis.openapi.from_wsgi("/api/schema", get_wsgi_application(), headers=headers)
    for end in ends:
        end.connect(close_old_connections)


@pytest.mark.timeout(600)  # some four thousand requests
@pytest.mark.parametrize("mode", list(GenerationMode))
def test_no_request_breaks_us(
    described: Any, secrets: Callable[[str], str], mode: GenerationMode
) -> None:
    operations = [found.ok() for found in described.get_all_operations()]
    assert len(operations) > 70
    for operation in operations:
        hunt(operation.as_strategy(generation_mode=mode), secrets(operation.path))


def hunt(cases: SearchStrategy[Case], secret: str) -> None:
    """Ask for one operation in many ways: of what was made up, and of a node that exists."""

    @SETTINGS
    @given(cases)
    def ask(case: Case) -> None:
        answer(case, secret)
        if isinstance(case.body, dict) and "token" in case.body:
            case.body["token"] = SECRET
        if isinstance(case.body, dict) and "model" in case.body:
            case.body["model"] = "llama"
        if "node_id" in case.path_parameters:
            case.path_parameters["node_id"] = str(NODE)
        for model in {"name", "model_name"} & case.path_parameters.keys():
            case.path_parameters[model] = "llama"
        if "job_id" in case.path_parameters:
            case.path_parameters["job_id"] = str(JOB)
        answer(case, secret)

    ask()


def answer(case: Case, secret: str) -> None:
    """Ask, look at the answer, and undo what it did: the next one finds the same cluster."""
    case.query.pop("refresh", None)  # asks the node itself, which nobody does in a transaction
    with transaction.atomic():
        reply = case.call(headers={"Authorization": f"Bearer {secret}"})
        transaction.set_rollback(True)
    case.validate_response(reply, checks=CHECKS)
