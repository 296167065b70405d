import pytest

from nodes.models import BackendNode
from nodes.services import labels
from tests.api.clients import Caller, Worker, read
from tests.factories import GIB, NOW, make_node


@pytest.fixture
def path(db: None) -> str:
    node = make_node(total_vram=10 * GIB, available_vram=10 * GIB)
    return f"/api/nodes/{node.pk}"


def test_put_replaces_what_operators_said_and_nothing_else(root: Caller, worker: Worker) -> None:
    path = f"/api/nodes/{worker.joined(labels={'site': 'berlin'})}/labels"
    root.put(path, {"tier": "fast", "rack": "7"})
    replaced = root.put(path, {"tier": "slow", "site": "berlin"})
    assert read(replaced) == {
        "gpu.vendor": "nvidia",
        "gpu.vram": "16GB",
        "node.name": "gpu-a",
        "node.replica-slots": "2",
        "site": "berlin",
        "tier": "slow",
    }
    worker.register(labels={"site": "paris"})
    assert read(root.get(path))["site"] == "paris"


def test_patch_merges(root: Caller, path: str) -> None:
    root.put(f"{path}/labels", {"tier": "fast", "rack": "7"})
    merged = root.patch(f"{path}/labels", {"rack": "8", "room": ""})
    assert merged.content == b'{"rack":"8","room":"","tier":"fast"}'


def test_deleting_a_label_answers_nothing_whether_it_was_there_or_not(
    root: Caller, path: str
) -> None:
    root.put(f"{path}/labels", {"a/b": "x"})
    for slash in ("", "/"):
        reply = root.delete(f"{path}/labels/a/b{slash}")
        assert (reply.status_code, reply.content) == (204, b"")
    assert read(root.get(f"{path}/labels")) == {}


def test_a_label_of_somebody_else_is_not_deleted_silently(root: Caller, worker: Worker) -> None:
    path = f"/api/nodes/{worker.joined()}/labels"
    reply = root.delete(f"{path}/tier")
    assert (reply.status_code, read(reply)["code"]) == (409, "conflict")
    assert read(root.get(path))["tier"] == "fast"


def test_row_67_an_override_of_the_slots_outlives_a_restart_until_it_is_reset(
    root: Caller, worker: Worker
) -> None:
    path = f"/api/nodes/{worker.joined()}/max-replicas-per-model"
    assert read(root.put(path, {"value": 4})) == {"max_replicas_per_model": 4}
    worker.register()
    assert BackendNode.objects.get().max_replicas_per_model == 4
    assert read(root.delete(path)) == {"reset": True}
    assert BackendNode.objects.get().max_replicas_per_model == 2


@pytest.mark.parametrize("budget", ["80%", "0.8", "8GB", "8GiB", "8000000000", ""])
def test_a_budget_is_answered_as_it_was_given(root: Caller, path: str, budget: str) -> None:
    reply = root.put(f"{path}/vram-budget", {"value": budget})
    assert (reply.status_code, read(reply)) == (200, {"vram_budget": budget})
    assert read(root.get(path))["vram_budget_manually_set"] is True
    assert read(root.delete(f"{path}/vram-budget")) == {"reset": True}
    assert read(root.get(path))["vram_budget_manually_set"] is False


def test_taints_are_replaced_as_a_whole(root: Caller, path: str) -> None:
    taint = {"key": "gpu", "value": "broken", "effect": "PreferNoSchedule"}
    assert read(root.put(f"{path}/taints", [taint])) == [taint]
    assert read(root.put(f"{path}/taints", [])) == []
    assert read(root.get(f"{path}/taints")) == []


EDITS: list[tuple[str, str, object]] = [
    ("PUT", "/labels", {"tier": "fast"}),
    ("PATCH", "/labels", {"tier": "fast"}),
    ("DELETE", "/labels/tier", b""),
    ("PUT", "/taints", [{"key": "gpu"}]),
    ("PUT", "/max-replicas-per-model", {"value": 4}),
    ("DELETE", "/max-replicas-per-model", b""),
    ("PUT", "/vram-budget", {"value": "80%"}),
    ("DELETE", "/vram-budget", b""),
]


@pytest.mark.parametrize(("method", "edit", "body"), EDITS)
def test_an_edit_of_an_old_version_is_refused(
    root: Caller, path: str, method: str, edit: str, body: object
) -> None:
    tag = root.get(path).headers["ETag"]
    labels.merge_admin(BackendNode.objects.get(), {"meanwhile": "yes"}, by="tests", now=NOW)
    before = BackendNode.objects.values().get()
    stale = root.send(method, f"{path}{edit}", body, **{"If-Match": tag})
    assert (stale.status_code, read(stale)["code"]) == (412, "precondition_failed")
    assert BackendNode.objects.values().get() == before
    fresh = root.get(path).headers["ETag"]
    assert root.send(method, f"{path}{edit}", body, **{"If-Match": fresh}).status_code < 300


def test_an_edit_answers_with_the_tag_that_the_next_one_needs(root: Caller, path: str) -> None:
    tag = root.get(f"{path}/labels").headers["ETag"]
    for value in ("1", "2", "3"):
        reply = root.patch(f"{path}/labels", {"n": value}, **{"If-Match": tag})
        assert reply.status_code == 200
        tag = reply.headers["ETag"]
    weak = root.patch(f"{path}/labels", {"n": "4"}, **{"If-Match": f"W/{tag}"})
    assert weak.status_code == 200
    assert root.patch(f"{path}/labels", {"n": "5"}, **{"If-Match": "*"}).status_code == 200


@pytest.mark.parametrize("tag", ["", "x", '"', "-1", "1.0", '"1", "2"', "W/", "9" * 5000, "\xb2"])
def test_a_tag_we_never_gave_out_is_refused(root: Caller, path: str, tag: str) -> None:
    reply = root.patch(f"{path}/labels", {"n": "1"}, **{"If-Match": tag})
    assert reply.status_code == 400
    assert "If-Match" in read(reply)["detail"]
