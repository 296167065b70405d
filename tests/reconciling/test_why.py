from datetime import timedelta
from typing import Any

import pytest

from backendops.models import GalleryBackend, NodeBackend, NodeInventory
from clustermgr.lib.errors import NotFound
from nodes.models import BackendNode, NodeTaint
from nodes.services import labels
from nodes.states import Liveness
from scheduling.models import LoadJob, PlacementDecision
from scheduling.planning.changes import Changes
from scheduling.planning.views import ModelView, RuleView
from scheduling.services import asking, standing
from scheduling.services.asking import Why
from tests.factories import GIB, NOW, make_model, make_node, make_replica, make_rule

pytestmark = pytest.mark.django_db


def why(model: str = "llama") -> Why:
    return asking.why(model, now=NOW)


def wanted(least: int = 1, *, vram: int | None = None, **rule: Any) -> None:
    make_model(vram_bytes=vram and vram * GIB)
    make_rule(min_replicas=least, **rule)


def test_too_little_vram_names_the_node_that_is_nearest_to_it() -> None:
    make_node("gpu-1", total_vram=24 * GIB, available_vram=2 * GIB)
    make_node("gpu-3", total_vram=24 * GIB, available_vram=int(5.9 * GIB))
    wanted(vram=8)
    answer = why()
    assert "2 have too little VRAM free" in answer.reason
    assert answer.smallest_fix == "free 2.1 GiB VRAM on gpu-3"


def test_a_cordon_is_the_only_obstacle() -> None:
    make_node("gpu-1", cordoned_at=NOW)
    wanted()
    assert "gpu-1: it is cordoned" in why().reason
    assert why().smallest_fix == "uncordon gpu-1"


def test_every_slot_is_taken() -> None:
    make_replica(make_node("gpu-2"), config_revision="r1")
    wanted(2)
    assert "its 1 slot for llama is taken" in why().reason
    assert why().smallest_fix == "raise slots on gpu-2 to 2, or lower min_replicas to 1"


def test_no_node_has_the_label() -> None:
    make_node("gpu-1")
    wanted(selector="tier=fast")
    assert "do not match tier=fast" in why().reason
    assert why().smallest_fix == "label gpu-1 tier=fast"


def test_a_taint_keeps_it_away() -> None:
    NodeTaint.objects.create(node=make_node("gpu-1"), key="spot")
    wanted()
    assert "spot=:NoSchedule is not tolerated" in why().reason
    assert why().smallest_fix == "tolerate spot=:NoSchedule, or remove it from gpu-1"


def test_no_card_is_large_enough() -> None:
    make_node("gpu-1", total_vram=8 * GIB, available_vram=8 * GIB)
    wanted(vram=40)
    assert "8.0 GiB of VRAM in all" in why().reason
    assert why().smallest_fix == "add a node with at least 40.0 GiB of VRAM"


def test_a_budget_is_too_small() -> None:
    budget = {"vram_budget": "4GiB", "vram_budget_bytes": 4 * GIB}
    make_node("gpu-1", total_vram=24 * GIB, available_vram=4 * GIB, **budget)
    wanted(vram=8)
    assert why().smallest_fix == "raise the VRAM budget of gpu-1 to 8.0 GiB"


def test_the_disk_is_too_full_for_the_payload_and_its_headroom() -> None:
    make_node("gpu-1", total_disk=100 * GIB, available_disk=10 * GIB)
    make_model(size_bytes=40 * GIB)
    make_rule(min_replicas=1)
    assert "10.0 GiB of disk are free, 42.0 GiB are needed" in why().reason
    assert why().smallest_fix == "free 32.0 GiB of disk on gpu-1"


def gallery(name: str, **builds: str) -> None:
    known = {"gallery": "main", "gallery_url": "https://main.example/index", "checked_at": NOW}
    GalleryBackend.objects.create(name=name, capabilities=builds, **known)


def tells(node: BackendNode, *backends: str) -> None:
    NodeInventory.objects.create(node=node, observed_at=NOW)
    for name in backends:
        NodeBackend.objects.create(node=node, name=name, first_seen_at=NOW, observed_at=NOW)


def test_no_gallery_has_the_backend_and_the_node_does_not_either() -> None:
    gallery("whisper")
    tells(make_node("gpu-1"), "whisper")
    wanted()
    assert "gpu-1: it does not have the backend reference, and no gallery has it" in why().reason
    assert why().smallest_fix == "install the backend reference on gpu-1"


def test_no_build_of_the_backend_is_for_this_hardware() -> None:
    gallery("reference", nvidia="cuda-reference", amd="rocm-reference")
    tells(make_node("gpu-1", capability="intel"))
    wanted()
    assert "no gallery has the backend reference for intel" in why().reason
    fix = "install a build of reference on gpu-1 by hand, or add a node with amd or nvidia"
    assert why().smallest_fix == fix


@pytest.mark.parametrize(
    "facts",
    [
        {"installed": ["reference"]},
        {"builds": {"nvidia": "cuda-reference"}},
        {"builds": {"default": "cpu-reference"}},
        {"builds": {}},
        {"silent": True},
        {"installed": ["cuda-reference"], "builds": {"amd": "cuda-reference"}},
    ],
    ids=["there", "by family", "runs anywhere", "no meta", "never told", "one of its builds"],
)
def test_a_backend_that_is_there_or_can_come_is_no_obstacle(facts: dict[str, Any]) -> None:
    gallery("whisper")
    if "builds" in facts:
        gallery("reference", **facts["builds"])
    node = make_node("gpu-1", capability="nvidia-cuda-12")
    if not facts.get("silent"):
        tells(node, *facts.get("installed", ()))
    wanted()
    assert why().verdicts[0].fits


def test_without_a_gallery_workers_may_have_their_own() -> None:
    tells(make_node("gpu-1"))
    wanted()
    assert why().verdicts[0].fits


def test_a_node_without_gpu_lacks_ram() -> None:
    ram = {"total_vram": 0, "available_vram": 0, "total_ram": 64 * GIB}
    make_node("cpu-1", **ram, available_ram=6 * GIB)
    wanted(vram=8)
    assert "cpu-1: 6.0 GiB of RAM are free, 8.0 GiB are needed" in why().reason
    assert why().smallest_fix == "free 2.0 GiB RAM on cpu-1"


def test_a_replacement_waits_its_turn_because_of_the_maximum() -> None:
    for name in ("gpu-1", "gpu-2", "gpu-3"):
        make_replica(make_node(name), config_revision="r0")
    wanted(3, max_replicas=3)
    answer = why()
    assert not answer.satisfied
    assert "One after the other: max_replicas is 3" in answer.reason
    plan = asking.what_if(Changes(), now=NOW)
    assert [one.cause for one in plan.unload] == ["replace"]
    assert "max_replicas is 3" in plan.unload[0].reason


def test_with_a_maximum_of_one_the_gap_is_told() -> None:
    make_replica(make_node("gpu-1"), config_revision="r0")
    make_node("gpu-2")
    wanted(1, max_replicas=1)
    plan = asking.what_if(Changes(), now=NOW)
    assert [one.node_name for one in plan.unload] == ["gpu-1"]
    assert "Nothing serves until it is loaded: max_replicas is 1" in plan.place[0].summary
    assert "Raise it to 2" in plan.place[0].summary


def test_nobody_has_defined_the_model() -> None:
    make_node()
    make_rule(min_replicas=1)
    assert "Nobody has defined how llama is loaded" in why().reason
    assert why().smallest_fix == "define the model llama"


def test_a_machine_that_waits_for_approval_could_take_it() -> None:
    make_node("new-1", approved_at=None, approved_by="")
    wanted()
    assert why().smallest_fix == "approve new-1"


def test_two_obstacles_on_one_node_need_two_changes() -> None:
    make_node("gpu-1", cordoned_at=NOW)
    wanted(selector="tier=fast")
    assert why().smallest_fix == "uncordon gpu-1 and label gpu-1 tier=fast"


@pytest.mark.parametrize(("failures", "words"), [(1, "once"), (2, "2 times")])
def test_a_failing_model_says_what_it_failed_with(failures: int, words: str) -> None:
    make_node()
    later = NOW + timedelta(minutes=1)
    make_model(failures=failures, last_error="bad weights", retry_at=later)
    make_rule(min_replicas=1)
    assert f"It failed {words}, last with: bad weights" in why().reason


def test_one_node_and_several_are_told_apart() -> None:
    make_node("gpu-1", drain_requested_at=NOW)
    for name in ("gpu-2", "gpu-3"):
        make_node(name, cordoned_at=NOW)
    wanted()
    reason = "None of 3 nodes can take llama: 2 are cordoned, 1 is being drained."
    assert why().reason == reason


@pytest.mark.parametrize(
    ("facts", "fix"),
    [
        ({"drain_requested_at": NOW}, "resume gpu-1"),
        ({"liveness": Liveness.UNHEALTHY}, "bring gpu-1 back to work"),
    ],
)
def test_what_stands_on_a_node_that_is_away_needs_no_second_place_there(
    facts: dict[str, Any], fix: str
) -> None:
    memory = {"total_vram": 24 * GIB, "available_vram": 2 * GIB}
    make_replica(make_node("gpu-1", **memory, **facts), config_revision="r1")
    wanted(vram=8)
    assert why().smallest_fix == fix


def test_who_serves_on_a_node_that_is_being_emptied_is_counted_as_in_the_list() -> None:
    make_replica(make_node("gpu-1", drain_requested_at=NOW), config_revision="r1")
    wanted()
    answer = why()
    assert (answer.serving, answer.coming, answer.satisfied) == (1, 0, False)
    assert standing.one("llama").actual == answer.serving


def test_another_machine_is_all_that_helps_where_none_is_large_enough() -> None:
    make_node("gpu-1", total_vram=8 * GIB, available_vram=8 * GIB, cordoned_at=NOW)
    wanted(vram=40, selector="tier=fast")
    fix = "add a node with at least 40.0 GiB of VRAM that matches tier=fast"
    assert why().smallest_fix == fix


def test_a_pause_does_not_hide_the_cause() -> None:
    make_node("gpu-1", cordoned_at=NOW)
    later = NOW + timedelta(minutes=5)
    wanted(unsatisfiable_since=NOW, unsatisfiable_until=later, unsatisfiable_reason="old.")
    assert why().smallest_fix == "uncordon gpu-1"


def test_all_is_well_and_every_node_has_its_verdict() -> None:
    make_replica(make_node("gpu-1"), config_revision="r1")
    make_node("gpu-2", cordoned_at=NOW)
    wanted()
    answer = why()
    assert answer.satisfied
    assert {verdict.name for verdict in answer.verdicts} == {"gpu-1", "gpu-2"}


def test_nobody_knows_the_model() -> None:
    with pytest.raises(NotFound, match="no model nothing"):
        why("nothing")


def test_draining_a_node_would_move_its_replica_and_asking_changes_nothing() -> None:
    node = make_node("gpu-1")
    make_node("gpu-2")
    make_replica(node, config_revision="r1")
    wanted()
    plan = asking.what_if(Changes(drain=("gpu-1",)), now=NOW)
    assert [(one.model, one.node_name, one.cause) for one in plan.place] == [
        ("llama", "gpu-2", "drain")
    ]
    assert not LoadJob.objects.exists()
    assert not PlacementDecision.objects.exists()
    node.refresh_from_db()
    assert node.drain_requested_at is None


def test_raising_the_minimum_would_be_too_much() -> None:
    make_node("gpu-1")
    make_node("gpu-2")
    wanted()
    plan = asking.what_if(Changes(rules={"llama": {"min_replicas": 4}}), now=NOW)
    assert len(plan.place) == 2
    assert plan.starved[0].missing == 2
    assert plan.starved[0].smallest_fix.endswith("or lower min_replicas to 2")


def test_a_new_model_would_go_where_its_labels_are() -> None:
    make_node("gpu-1")
    labels.replace_admin(make_node("gpu-2"), {"tier": "fast"}, by="tests", now=NOW)
    rule = RuleView(min_replicas=1, selector="tier=fast")
    new = ModelView(name="qwen", revision="new", rule=rule)
    plan = asking.what_if(Changes(models=(new,)), now=NOW)
    assert [(one.model, one.node_name) for one in plan.place] == [("qwen", "gpu-2")]


def test_a_node_nobody_knows_cannot_be_supposed_away() -> None:
    with pytest.raises(NotFound, match="no node gpu-9"):
        asking.what_if(Changes(remove=("gpu-9",)), now=NOW)
