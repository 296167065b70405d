from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import override_settings

from clustermgr.conf import ClusterSettings
from clustermgr.lib.errors import InvalidInput, PreconditionFailed
from nodes.models import ClusterEvent
from scheduling.models import ModelSchedulingConfig
from scheduling.services import policies, seeding
from tests.factories import NOW, make_rule

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("queued")]


def put(**document: Any) -> ModelSchedulingConfig:
    return policies.put({"model_name": "llama", **document}, by="ada", now=NOW)


def test_row_69_routing_fields_left_out_stay_and_the_others_are_replaced() -> None:
    put(
        node_selector={"tier": "fast"},
        min_replicas=1,
        max_replicas=3,
        route_policy="prefix_cache",
        balance_abs_threshold=2,
        balance_rel_threshold=1.5,
        min_prefix_match=0.3,
        pinned=True,
        priority=7,
    )
    rule = put(max_replicas=2)
    assert (rule.selector, rule.min_replicas, rule.max_replicas) == ("", 0, 2)
    assert (rule.route_policy, rule.balance_abs_threshold) == ("prefix_cache", 2)
    assert (rule.balance_rel_threshold, rule.min_prefix_match) == (1.5, 0.3)
    assert (rule.pinned, rule.priority, rule.version) == (True, 7, 2)
    assert put(max_replicas=2, route_policy="").route_policy == ""


@pytest.mark.parametrize("changes", [{"min_replicas": 2}, {"min_replicas": 1}])
def test_an_edit_ends_the_pause_even_if_it_changes_nothing(
    changes: dict[str, Any], queued: list[Any], django_capture_on_commit_callbacks: Any
) -> None:
    make_rule(
        min_replicas=1,
        unsatisfiable_since=NOW,
        unsatisfiable_until=NOW + timedelta(minutes=5),
        unsatisfiable_reason="no node has a free slot",
    )
    with django_capture_on_commit_callbacks(execute=True):
        rule = put(**changes)
    assert (rule.unsatisfiable_since, rule.unsatisfiable_until) == (None, None)
    assert rule.unsatisfiable_reason == ""
    assert queued == [("scheduling.reconcile",)]


def test_every_change_is_remembered_and_none_is_not() -> None:
    put(min_replicas=1)
    put(min_replicas=1)
    put(min_replicas=2)
    policies.delete("llama", by="bob", now=NOW)
    policies.delete("llama", by="bob", now=NOW)
    kinds = ClusterEvent.objects.order_by("id").values_list("kind", "actor")
    assert list(kinds) == [
        ("rule.created", "ada"),
        ("rule.changed", "ada"),
        ("rule.deleted", "bob"),
    ]
    changed = ClusterEvent.objects.get(kind="rule.changed")
    assert (changed.before["min_replicas"], changed.after["min_replicas"]) == (1, 2)


def test_who_edits_an_old_version_is_told() -> None:
    put(min_replicas=1)
    put(min_replicas=2)
    with pytest.raises(PreconditionFailed):
        policies.put({"model_name": "llama"}, by="bob", now=NOW, expected_version=1)
    with pytest.raises(PreconditionFailed):
        policies.delete("llama", by="bob", now=NOW, expected_version=1)


@pytest.mark.django_db(transaction=True)
def test_two_who_create_one_rule_meet_in_one_row() -> None:
    def attempt(number: int) -> None:
        try:
            put(min_replicas=number)
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(attempt, range(1, 9)))
    rule = ModelSchedulingConfig.objects.get()
    assert rule.version == 8


def seeds(text: str = "", path: str = "") -> int:
    return seeding.seed(seeding.documents(text=text, path=path), now=NOW)


def test_rules_of_the_environment_are_restored_at_every_start(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text("- model: b\n  replicas: all\n  node_selector: {tier: fast}\n")
    text = '[{"model_name": "a", "min_replicas": 2, "replicas": "auto"}]'
    make_rule("untouched", min_replicas=1)
    assert seeds(text, str(file)) == 2
    a, b = (ModelSchedulingConfig.objects.get(model_name=name) for name in "ab")
    assert (a.min_replicas, a.spread_all) == (2, False)
    assert (b.spread_all, b.selector) == (True, "tier=fast")
    assert seeds(text, str(file)) == 0
    policies.put({"model_name": "a", "route_policy": "round_robin"}, by="ada", now=NOW)
    assert seeds(text, str(file)) == 1
    a.refresh_from_db()
    assert (a.min_replicas, a.route_policy) == (2, "")
    assert ModelSchedulingConfig.objects.filter(model_name="untouched").exists()


def test_a_restart_does_not_end_a_pause() -> None:
    text = '[{"model_name": "a", "min_replicas": 2}]'
    seeds(text)
    ModelSchedulingConfig.objects.update(unsatisfiable_since=NOW)
    assert seeds(text) == 0
    assert ModelSchedulingConfig.objects.get().unsatisfiable_since == NOW


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[{", "is no JSON"),
        ('{"model_name": "a"}', "must be a list"),
        ("[1]", "rule 1 must be an object"),
        ('[{"model_name": "a", "replicas": 2}]', "use min_replicas and max_replicas"),
        ('[{"model_name": "a", "replicas": "some"}]', "replicas must be all or auto"),
        ('[{"model_name": "a"}, {"min_replicas": 1}]', "rule 2: model_name is required"),
        (
            '[{"model_name": "a", "min_replicas": 2, "max_replicas": 1}]',
            "is more than max_replicas",
        ),
    ],
)
def test_a_rule_of_the_environment_that_cannot_be_read_is_named(text: str, words: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        seeds(text)
    assert words in str(refusal.value)
    assert not ModelSchedulingConfig.objects.exists()


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be read"):
        seeds(path=str(tmp_path / "nowhere.yaml"))
    file = tmp_path / "rules.yaml"
    file.write_text("a: [")
    with pytest.raises(InvalidInput, match="is no YAML"):
        seeds(path=str(file))


@pytest.mark.django_db(transaction=True)
def test_a_parse_error_stops_the_start() -> None:
    with (
        override_settings(CLUSTER=ClusterSettings(model_scheduling="[{")),
        pytest.raises(CommandError, match="CLUSTER_MODEL_SCHEDULING is no JSON"),
    ):
        call_command("prepare")
