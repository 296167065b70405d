"""One rule that nobody can read: an older version wrote it, or a hand."""

from typing import Any

import pytest

from scheduling.models import ModelSchedulingConfig
from tests.api.clients import Caller, read
from tests.factories import make_model, make_node, make_replica, make_rule

RULES = "/api/nodes/scheduling"
BROKEN: list[dict[str, Any]] = [
    {"selector": "tier=("},
    {"tolerations": {"not": "a list"}},
    {"tolerations": [{"kee": "spot"}]},
    {"tolerations": ["spot"]},
    {"tolerations": [{"key": 3}]},
    {"tolerations": "spot"},
]


@pytest.fixture(params=BROKEN, ids=str)
def broken(request: pytest.FixtureRequest) -> dict[str, Any]:
    node = make_node()
    for name in ("bad", "good"):
        make_model(name)
        make_rule(name, min_replicas=1)
        make_replica(node, name, config_revision="r1")
    found: dict[str, Any] = request.param
    ModelSchedulingConfig.objects.filter(model_name="bad").update(**found)
    return found


@pytest.mark.parametrize("path", [RULES, "/api/models"])
def test_a_list_shows_it_with_what_is_wrong_and_the_others_as_ever(
    root: Caller, broken: dict[str, Any], path: str
) -> None:
    bad, good = read(root.get(path))
    assert bad["why"].startswith("Its rule cannot be read: ")
    assert good["why"] == ""
    rule = bad if path == RULES else bad["rule"]
    assert (rule["matching_nodes"], "node_selector" in rule) == (0, False)
    assert isinstance(rule["tolerations"], list)


@pytest.mark.parametrize(
    "path", [f"{RULES}/bad", "/api/models/bad", "/api/models/bad/why", "/api/models/good"]
)
def test_it_can_be_looked_at_alone(root: Caller, broken: dict[str, Any], path: str) -> None:
    assert root.get(path).status_code == 200


def test_it_is_put_right_by_another_in_its_place(root: Caller, broken: dict[str, Any]) -> None:
    rule = {"model_name": "bad", "min_replicas": 1, "selector": "", "tolerations": []}
    assert read(root.post(RULES, rule))["why"] == ""
