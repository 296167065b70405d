import json
from datetime import timedelta
from typing import Any

import pytest

from nodes.services import labels
from nodes.states import ReplicaState
from scheduling.models import ModelLoadInfo, PlacementDecision
from scheduling.states import Cause, JobState
from tests.api.clients import Caller, read
from tests.factories import GIB, NOW, make_job, make_model, make_node, make_replica, make_rule

PATH = "/api/models"
LLAMA = {
    "name": "llama",
    "backend": "reference",
    "options": {"ContextSize": 8192},
    "vram": "4.1 GiB",
}


def test_a_model_is_defined_read_changed_and_deleted(root: Caller) -> None:
    made = root.post(PATH, LLAMA)
    assert (made.status_code, made.headers["ETag"]) == (201, '"1"')
    told = read(made)
    assert told["options"] == {"ContextSize": 8192, "Model": "llama"}
    assert (told["vram_bytes"], told["size_bytes"]) == (4402341478, None)
    assert (told["desired"], told["actual"], told["rule"]) == (0, 0, None)
    assert read(root.get(PATH)) == [told]
    assert read(root.get(f"{PATH}/llama")) == told
    make_replica(make_node(), config_revision=told["config_revision"])
    changed = root.patch(f"{PATH}/llama", {"options": {"ContextSize": 4096}}, **{"If-Match": '"1"'})
    assert (changed.status_code, changed.headers["ETag"]) == (200, '"2"')
    assert (read(changed)["outdated"], read(changed)["vram_bytes"]) == (1, 4402341478)
    replaced = read(root.put(f"{PATH}/llama", {"backend": "reference"}))
    assert (replaced["options"], replaced["vram_bytes"]) == ({"Model": "llama"}, None)
    assert root.delete(f"{PATH}/llama").status_code == 409
    gone = root.delete(f"{PATH}/llama?force=true")
    assert read(gone) == {"message": "model deleted", "unloading": 1}
    assert root.get(f"{PATH}/llama").status_code == 404


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"backend": "reference"}, "The model needs a name."),
        ({"name": "m"}, "The model needs a backend."),
        ({"name": "m", "backend": "x y"}, "is no name of a backend"),
        ({"name": "m", "backend": "x", "options": {"ContextSise": 1}}, "did you mean ContextSize?"),
        ({"name": "m", "backend": "x", "options": {"Threads": "4"}}, "Threads must be a whole"),
        ({"name": "m", "backend": "x", "vram": -1}, "vram must be between 0"),
        ({"name": "m", "backend": "x", "size": "big"}, "is no size"),
        ({"name": "a#b", "backend": "x"}, "is no name for a model"),
        ({"name": 7, "backend": "x"}, "must be a text"),
        ([], "A model is an object"),
    ],
)
def test_bad_input_is_a_400_with_a_sentence(root: Caller, body: Any, words: str) -> None:
    reply = root.post(PATH, json.dumps(body).encode())
    assert reply.status_code == 400
    assert words in read(reply)["detail"]
    assert not ModelLoadInfo.objects.exists()


def test_a_second_of_the_same_name_and_a_rename_are_refused(root: Caller) -> None:
    root.post(PATH, LLAMA)
    assert root.post(PATH, LLAMA).status_code == 409
    renamed = root.patch(f"{PATH}/llama", {"name": "alpaca"})
    assert renamed.status_code == 400
    assert "cannot be renamed" in read(renamed)["detail"]
    stale = root.put(f"{PATH}/llama", LLAMA, **{"If-Match": '"9"'})
    assert stale.status_code == 412


def test_a_name_with_slashes_has_an_address(root: Caller) -> None:
    assert root.post(PATH, {**LLAMA, "name": "org/llama"}).status_code == 201
    assert read(root.get(f"{PATH}/org/llama"))["name"] == "org/llama"
    assert root.get(f"{PATH}/org%2Fllama/jobs").status_code == 200


def test_many_are_imported_from_json_or_yaml(root: Caller) -> None:
    done = root.post(f"{PATH}/import", {"models": [LLAMA, {"name": "b", "backend": "x"}]})
    assert read(done)["created"] == ["b", "llama"]
    yaml = "- name: b\n  backend: y\n- name: c\n  backend: y\n"
    done = root.post(f"{PATH}/import", {"yaml": yaml})
    assert (read(done)["created"], read(done)["edited"]) == (["c"], ["b"])
    both = {"models": [], "yaml": yaml}
    for bad in ({"yaml": "a: ["}, {"yaml": "name: x"}, {"models": [1]}, {}, both):
        assert root.post(f"{PATH}/import", bad).status_code == 400


def test_the_list_can_be_searched_and_paged(root: Caller) -> None:
    for name in ("alpaca", "llama", "lama"):
        make_model(name)
    names = [model["name"] for model in read(root.get(f"{PATH}?q=LAMA"))]
    assert names == ["lama", "llama"]
    page = root.get(f"{PATH}?page=2&page_size=2")
    assert ([model["name"] for model in read(page)], page.headers["X-Total-Count"]) == (
        ["llama"],
        "3",
    )


def test_replicas_tell_whether_they_serve_and_are_current(root: Caller) -> None:
    node = make_node()
    make_model(config_revision="r2")
    make_replica(node, index=0, config_revision="r2")
    make_replica(node, index=1, config_revision="r1", outdated_at=NOW)
    make_replica(node, index=2, config_revision="r2", state=ReplicaState.UNLOADING)
    told = read(root.get(f"{PATH}/llama/replicas"))
    assert [(one["serving"], one["current"]) for one in told] == [
        (True, True),
        (False, False),
        (False, True),
    ]


def test_jobs_tell_an_honest_eta_or_none(root: Caller) -> None:
    node = make_node()
    staging: dict[str, Any] = {
        "state": JobState.STAGING,
        "lease_until": NOW,
        "started_at": NOW,
        "progress_at": NOW + timedelta(seconds=10),
        "current_bytes": 1 * GIB,
        "total_bytes": 4 * GIB,
        "percentage": 25,
    }
    make_job(node, index=0, **staging)
    make_job(node, index=1)
    first, second = read(root.get(f"{PATH}/llama/jobs"))
    assert (first["state"], first["eta_seconds"]) == ("pending", None)
    assert (second["state"], second["eta_seconds"]) == ("staging", 30.0)
    assert len(read(root.get("/api/scheduling/jobs?state=active"))) == 2
    assert len(read(root.get("/api/scheduling/jobs?state=staging&model=llama"))) == 1
    assert root.get("/api/scheduling/jobs?state=nonsense").status_code == 400
    assert read(root.get(f"{PATH}/llama/load-status")) == {
        "model": "llama",
        "state": "staging",
        "node": "gpu-1",
        "progress": 25.0,
        "bytes_sent": GIB,
        "total_bytes": 4 * GIB,
        "file_index": 0,
        "total_files": 0,
        "eta_seconds": 31,
    }
    assert root.get(f"{PATH}/other/load-status").status_code == 404


def test_decisions_tell_each_nodes_verdict(root: Caller) -> None:
    verdict = {"node": "x", "name": "gpu-1", "fits": False, "why": "cordoned", "score": []}
    PlacementDecision.objects.create(
        at=NOW,
        model_name="llama",
        cause=Cause.FLOOR,
        summary="No node fits.",
        smallest_fix="Uncordon gpu-1.",
        verdicts=[verdict],
    )
    [told] = read(root.get(f"{PATH}/llama/decisions"))
    assert (told["summary"], told["smallest_fix"]) == ("No node fits.", "Uncordon gpu-1.")
    assert told["verdicts"] == [verdict]


def test_why_it_is_not_as_wished_is_told_with_its_age(root: Caller) -> None:
    make_model()
    make_rule(min_replicas=1)
    told = read(root.get(f"{PATH}/llama"))
    assert (told["why"], told["desired"]) == ("The scheduler has not looked at it yet.", 1)
    PlacementDecision.objects.create(
        at=NOW, model_name="llama", cause=Cause.FLOOR, summary="No node fits."
    )
    told = read(root.get(f"{PATH}/llama"))
    assert (told["why"], told["since"]) == ("No node fits.", "2030-01-01T12:00:00Z")
    ModelLoadInfo.objects.update(failures=2, last_error="no such file", retry_at=NOW)
    for minute, state in enumerate((JobState.FAILED, JobState.LOADED, *[JobState.FAILED] * 2)):
        when = NOW + timedelta(minutes=minute)
        make_job(make_node(f"gpu-{minute}"), state=state, finished_at=when)
    told = read(root.get(f"{PATH}/llama"))
    assert told["why"] == "It failed 2 times in a row: no such file"
    assert told["since"] == "2030-01-01T12:02:00Z"  # the first since the last that came up


def test_enough_serve_but_one_of_them_on_a_node_that_goes_and_the_list_says_so(
    root: Caller,
) -> None:
    make_model()
    make_replica(make_node(drain_requested_at=NOW), config_revision="r1")
    make_rule(min_replicas=1, unsatisfiable_since=NOW, unsatisfiable_reason="No node fits.")
    told = read(root.get(f"{PATH}/llama"))
    assert (told["actual"], told["why"]) == (1, "No node fits.")
    assert told["since"] == "2030-01-01T12:00:00Z"


def test_capacity_is_counted_by_a_labels_value(root: Caller) -> None:
    memory = {"total_vram": 10 * GIB, "available_vram": 8 * GIB, "reserved_vram": GIB}
    first = make_node("a", max_replicas_per_model=2, **memory)
    second = make_node("b", cordoned_at=NOW, **memory)
    make_node("c", **memory)
    for node in (first, second):
        labels.merge_admin(node, {"tier": "fast"}, by="tests", now=NOW)
    make_replica(first)
    fast, none = read(root.get("/api/scheduling/capacity?label=tier"))
    assert (fast["value"], fast["nodes"], fast["schedulable"]) == ("fast", 2, 1)
    assert (fast["slots_per_model"], fast["replicas"]) == (2, 1)
    assert (fast["total_vram"], fast["free_vram"]) == (20 * GIB, 7 * GIB)
    assert (none["value"], none["nodes"]) == (None, 1)
    assert root.get("/api/scheduling/capacity").status_code == 400
