import json
from datetime import timedelta
from typing import Any

import pytest

from nodes.services import labels
from scheduling.models import ModelSchedulingConfig
from tests.api.clients import Caller, read
from tests.factories import NOW, make_job, make_model, make_node, make_replica, make_rule
from tests.scheduling.test_rules import BAD

PATH = "/api/nodes/scheduling"
ALWAYS = {
    "id",
    "model_name",
    "min_replicas",
    "max_replicas",
    "unsatisfiable_ticks",
    "created_at",
    "updated_at",
}
SOMETIMES = {
    "node_selector",
    "spread_all",
    "route_policy",
    "balance_abs_threshold",
    "balance_rel_threshold",
    "min_prefix_match",
    "unsatisfiable_until",
}
OURS = {
    "selector",
    "tolerations",
    "pinned",
    "priority",
    "strategy",
    "unsatisfiable_since",
    "unsatisfiable_reason",
    "matching_nodes",
    "desired",
    "actual",
    "loading",
    "outdated",
    "why",
    "version",
    "updated_by",
}


def test_a_full_rule_has_localais_shape(root: Caller) -> None:
    reply = root.post(
        PATH,
        {
            "model_name": "llama",
            "node_selector": {"tier": "fast", "gpu": "a"},
            "min_replicas": 1,
            "max_replicas": 3,
            "route_policy": "prefix_cache",
            "balance_abs_threshold": 2,
            "balance_rel_threshold": 1.5,
            "min_prefix_match": 0.25,
        },
    )
    assert reply.status_code == 200, reply.content
    told = read(reply)
    assert told["node_selector"] == '{"gpu":"a","tier":"fast"}'
    assert told["route_policy"] == "prefix_cache"
    assert (told["balance_rel_threshold"], told["min_prefix_match"]) == (1.5, 0.25)
    assert (told["min_replicas"], told["max_replicas"]) == (1, 3)
    assert told["unsatisfiable_ticks"] == 0
    assert set(told) == ALWAYS | SOMETIMES - {"spread_all", "unsatisfiable_until"} | OURS
    assert read(root.get(f"{PATH}/llama")) == told
    assert read(root.get(PATH)) == [told]


def test_an_empty_rule_leaves_out_what_go_would(root: Caller) -> None:
    told = read(root.post(PATH, {"model_name": "llama"}))
    assert set(told) == ALWAYS | OURS


def test_an_answer_can_be_sent_back_and_changes_nothing(root: Caller) -> None:
    told = read(
        root.post(PATH, {"model_name": "m", "node_selector": {"a": "b"}, "max_replicas": 2})
    )
    told.pop("selector")
    again = read(root.post(PATH, told))
    assert again["version"] == 1
    assert again["node_selector"] == '{"a":"b"}'


@pytest.mark.parametrize(("document", "words"), BAD)
def test_row_69_bad_input_is_a_400_with_a_sentence(root: Caller, document: Any, words: str) -> None:
    body = json.dumps(document, default=str)
    if "NaN" in body:
        words = "invalid request body"
    reply = root.post(PATH, body.encode())
    assert reply.status_code == 400, reply.content
    assert words in read(reply)["detail"]
    assert not ModelSchedulingConfig.objects.exists()


def test_row_70_a_rule_that_cannot_be_satisfied_says_so_and_until_when(root: Caller) -> None:
    rule = make_rule(min_replicas=1, unsatisfiable_since=NOW, unsatisfiable_reason="No free slot.")
    assert read(root.get(f"{PATH}/llama"))["unsatisfiable_ticks"] == 1
    rule.unsatisfiable_until = NOW + timedelta(minutes=5)
    rule.save()
    make_model()
    told = read(root.get(f"{PATH}/llama"))
    assert told["unsatisfiable_ticks"] == 3
    assert told["unsatisfiable_until"] == "2030-01-01T12:05:00Z"
    assert told["why"] == "No free slot."


def test_row_71_a_rule_tells_desired_actual_and_matching_nodes(root: Caller) -> None:
    fast, slow = make_node("fast"), make_node("slow")
    labels.merge_admin(fast, {"tier": "fast"}, by="tests", now=NOW)
    make_node("cordoned", cordoned_at=NOW)
    make_rule(selector="tier=fast", spread_all=True)
    make_rule("other", min_replicas=3)
    make_replica(fast)
    make_replica(slow, index=1, outdated_at=NOW)
    make_job(fast, index=2)
    told = {rule["model_name"]: rule for rule in read(root.get(PATH))}
    llama, other = told["llama"], told["other"]
    assert (llama["matching_nodes"], llama["desired"], llama["actual"]) == (1, 1, 1)
    assert (llama["loading"], llama["outdated"], llama["why"]) == (1, 1, "")
    assert (other["matching_nodes"], other["desired"], other["actual"]) == (2, 3, 0)
    assert other["why"] == "Nobody has defined this model: what to load is not known."


def test_the_word_scheduling_is_no_node(root: Caller) -> None:
    assert read(root.get(PATH)) == []
    assert root.get(f"{PATH}/").status_code == 200


def test_a_rule_that_is_not_there(root: Caller) -> None:
    assert root.get(f"{PATH}/nothing").status_code == 404
    assert root.delete(f"{PATH}/nothing").status_code == 204


def test_a_rule_is_deleted(root: Caller) -> None:
    make_rule("org/llama")
    assert root.get(f"{PATH}/org/llama").status_code == 200
    assert root.get(f"{PATH}/org%2Fllama").status_code == 200
    assert root.delete(f"{PATH}/org/llama").status_code == 204
    assert not ModelSchedulingConfig.objects.exists()


def test_an_edit_of_an_old_version_is_refused(root: Caller) -> None:
    first = root.post(PATH, {"model_name": "m"})
    tag = first.headers["ETag"]
    root.post(PATH, {"model_name": "m", "min_replicas": 1})
    stale = root.post(PATH, {"model_name": "m"}, **{"If-Match": tag})
    assert stale.status_code == 412
    assert root.delete(f"{PATH}/m", **{"If-Match": tag}).status_code == 412


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"node_selector": {"tier": "fast"}},
        {"node_selector": {"tier": "fast", "gpu": "a b"}},
        {"selector": "tier=fast"},
        {"selector": "tier in (fast,slow),!spot,mem>8"},
        {"selector": "tier"},
        {"spread_all": True},
        {"max_replicas": 3, "min_replicas": 1},
        {"route_policy": "prefix_cache", "balance_abs_threshold": 2, "min_prefix_match": 0.5},
        {"balance_rel_threshold": 1.5, "pinned": True, "priority": -3, "strategy": "binpack"},
        {"tolerations": [{"key": "spot"}, {"key": "a", "value": "", "effect": "NoSchedule"}]},
    ],
    ids=str,
)
def test_what_was_answered_can_be_sent_back_and_changes_nothing(
    root: Caller, said: dict[str, Any]
) -> None:
    assert root.post(PATH, {"model_name": "llama", **said}).status_code == 200
    told = read(root.get(f"{PATH}/llama"))
    assert read(root.post(PATH, told)) == told
    assert read(root.post(PATH, {"node_selector": "", **told})) == told
