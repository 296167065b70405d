from typing import Any

import pytest

from clustermgr.lib.errors import InvalidInput
from scheduling import rules

BAD: list[tuple[object, str]] = [
    ({}, "model_name is required."),
    ({"model_name": "m", "min_replicas": -1}, "min_replicas must not be negative."),
    ({"model_name": "m", "max_replicas": -1}, "max_replicas must not be negative."),
    (
        {"model_name": "m", "min_replicas": 3, "max_replicas": 2},
        "min_replicas (3) is more than max_replicas (2).",
    ),
    ({"model_name": "m", "spread_all": True, "min_replicas": 1}, "must be 0 with it"),
    ({"model_name": "m", "spread_all": True, "max_replicas": 1}, "must be 0 with it"),
    ({"model_name": "m", "route_policy": "random"}, "route_policy must be one of"),
    ({"model_name": "m", "balance_abs_threshold": -1}, "from 0 to"),
    ({"model_name": "m", "balance_rel_threshold": 0.5}, "must be 0 (inherit) or at least 1"),
    ({"model_name": "m", "min_prefix_match": 1.1}, "must be between 0 and 1"),
    ({"model_name": "m", "min_prefix_match": -0.1}, "must be between 0 and 1"),
    ({"model_name": "m", "node_selector": "gpu=yes"}, "holds no JSON object"),
    ({"model_name": "m", "node_selector": ["a"]}, "A selector is an object"),
    ({"model_name": "m", "node_selector": "[1]"}, "A selector is an object"),
    ({"model_name": "m", "selector": "tier in (a"}, "The selector cannot be read"),
    ({"model_name": "m", "selector": "a", "node_selector": {}}, "not both"),
    ({"model_name": "m", "selector": "a=1", "node_selector": {"a": "2"}}, "not both"),
    ({"model_name": "m", "selector": "a=1,b=1", "node_selector": '{"a": "1"}'}, "not both"),
    ({"model_name": "m", "selector": "a=1", "node_selector": "{"}, "no JSON object"),
    ({"model_name": "m", "selector": 3}, "selector must be a text"),
    ({"model_name": "m", "min_replicas": 10**9}, "must not be more than 10000"),
    ({"model_name": "m", "min_replicas": True}, "must be a whole number"),
    ({"model_name": "m", "spread_all": "yes"}, "spread_all must be true or false"),
    ({"model_name": "m", "min_prefix_match": float("nan")}, "must be a number"),
    ({"model_name": "m", "balance_rel_threshold": 10**400}, "must be a number"),
    ({"model_name": "m", "replicas": 2}, "A rule has no 'replicas'; did you mean min_replicas?"),
    ({"model_name": "m", "strategy": "random"}, "strategy must be one of spread, binpack"),
    ({"model_name": "m", "tolerations": [{"key": "a b"}]}, "key"),
    ({"model_name": "m", "tolerations": [{"colour": "a"}]}, "A toleration has no 'colour'."),
    ({"model_name": "m", "tolerations": [{"effect": "Explode"}]}, "tolerations.effect must be"),
    ({"model_name": "m", "tolerations": "all"}, "must be a list of objects"),
    ([], "A rule is an object"),
]


@pytest.mark.parametrize(("document", "words"), BAD)
def test_row_69_a_rule_that_cannot_be_meant_is_refused(document: object, words: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        rules.read(document)
    assert words in str(refusal.value)


def test_what_localai_replaces_is_replaced_and_the_rest_is_not_mentioned() -> None:
    name, columns = rules.read({"model_name": "m"})
    assert name == "m"
    assert columns == {
        "selector": "",
        "min_replicas": 0,
        "max_replicas": 0,
        "spread_all": False,
    }


@pytest.mark.parametrize(
    "given",
    [
        {"node_selector": {"tier": "fast", "gpu": "a b"}},
        {"node_selector": '{"gpu": "a b", "tier": "fast"}'},
        {"selector": 'tier=fast, gpu="a b"'},
    ],
)
def test_a_selector_reads_the_same_in_every_form(given: dict[str, Any]) -> None:
    _, columns = rules.read({"model_name": "m", **given})
    assert columns["selector"] == 'gpu="a b",tier=fast'
    assert rules.as_pairs(columns["selector"]) == {"tier": "fast", "gpu": "a b"}


@pytest.mark.parametrize("text", ["a!=b", "a", "a in (b,c)", "a>3"])
def test_a_selector_that_localai_cannot_say_is_not_told_as_something_else(text: str) -> None:
    assert rules.as_pairs(text) is None
