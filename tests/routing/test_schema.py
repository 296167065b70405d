"""Programs are told of every answer they may get."""

from typing import Any

import pytest
from drf_spectacular.generators import SchemaGenerator

from tests.factories import make_model, make_node
from tests.routing.conftest import Caller

LEASES = ("endLease", "renewLease", "endLeases", "reportFailure")


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    generator: Any = SchemaGenerator  # it carries no types
    schema: dict[str, Any] = generator().get_schema(public=True)
    return schema


def refused(described: dict[str, Any], operation: str) -> dict[str, Any]:
    """The shape of an operation's 503."""
    operations = [one for path in described["paths"].values() for one in path.values()]
    (found,) = (one for one in operations if one.get("operationId") == operation)
    (content,) = found["responses"]["503"]["content"].values()
    name = content["schema"]["$ref"].rpartition("/")[2]
    shape: dict[str, Any] = described["components"]["schemas"][name]
    return shape


@pytest.mark.parametrize("operation", LEASES)
def test_that_the_database_is_away_is_described(described: dict[str, Any], operation: str) -> None:
    assert {"code", "detail"} <= refused(described, operation)["properties"].keys()


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("queued")
def test_all_that_a_caller_is_told_who_would_not_wait_is_described(
    described: dict[str, Any], caller: Caller
) -> None:
    make_model()
    make_node()
    status, told = caller.run(lambda it: it.route(timeout=0))
    shape = refused(described, "route")
    assert (status, told.keys() - shape["properties"].keys()) == (503, set())
    loading = described["components"]["schemas"]["LoadStatusOut"]
    assert "LoadStatusOut" in str(shape["properties"]["loading"])
    assert not told["loading"].keys() - loading["properties"].keys()
