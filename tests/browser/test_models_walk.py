from typing import Any
from urllib.parse import quote

from playwright.sync_api import Page, expect

from nodes.models import BackendNode
from nodes.services import draining
from scheduling.models import ModelLoadInfo, ModelSchedulingConfig
from scheduling.services import reconciling
from tests.browser.conftest import Register
from tests.factories import GIB, NOW, make_model, make_replica, make_rule

MODELS = "/admin/scheduling/modelloadinfo/"


def page_of(name: str) -> str:
    return f"{MODELS}{quote(name, safe='')}/change/"


def machine(register: Register, name: str) -> str:
    node = register(name, total_vram=24 * GIB, available_vram=24 * GIB)
    BackendNode.objects.filter(pk=node).update(approved_at=NOW, approved_by="tests")
    return node


def test_a_model_is_defined_given_a_rule_waits_and_says_why(
    console: Page, live_server: Any, register: Register
) -> None:
    machine(register, "gpu-a")
    console.goto(live_server.url + MODELS)
    console.locator("#content, main").get_by_role("link", name="Define a model").first.click()
    console.get_by_label("Name", exact=True).fill("giant")
    console.get_by_label("Backend", exact=True).fill("reference")
    console.get_by_label("VRAM it needs").fill("400 GiB")
    console.get_by_role("button", name="Define").click()
    expect(console.get_by_text("giant is defined.")).to_be_visible()

    expect(console.locator("#matches")).to_contain_text("matches 1 of 1 node")
    console.get_by_label("Minimum", exact=True).fill("2")
    console.get_by_label("Maximum (0: no limit)").fill("1")
    console.get_by_role("button", name="Make the rule").click()
    expect(console.get_by_text("min_replicas (2) is more than max_replicas (1).")).to_be_visible()
    expect(console.locator("[name=min_replicas]")).to_have_value("2")
    console.get_by_label("Maximum (0: no limit)").fill("0")
    console.get_by_role("button", name="Make the rule").click()
    expect(console.get_by_text("The rule of giant is saved: at least 2.")).to_be_visible()

    reconciling.tick(now=NOW)
    console.goto(live_server.url + MODELS)
    expect(console.locator("#result_list .cm-is-starved")).to_be_visible()
    console.get_by_role("button", name="Why giant?").click()
    answer = console.locator("#answer")
    expect(answer).to_contain_text("400.0 GiB are needed.")
    expect(answer).to_contain_text("To mend it: add a node with at least 400")
    answer.get_by_text("What each of 1 nodes says").click()
    expect(answer.get_by_role("cell", name="gpu-a")).to_be_visible()


def test_what_if_is_asked_by_mouse_and_answers_without_touching(
    console: Page, live_server: Any, register: Register
) -> None:
    first, _ = machine(register, "gpu-a"), machine(register, "gpu-b")
    make_model()
    make_rule(min_replicas=1)
    make_replica(BackendNode.objects.get(pk=first), config_revision="r1")
    console.goto(f"{live_server.url}/admin/nodes/backendnode/{first}/change/")
    console.get_by_role("link", name="What if this node goes?").click()
    expect(console.locator("#answer")).to_contain_text("1 replica leaves, 1 is loaded.")
    expect(console.locator("#answer")).to_contain_text("Goes when it is replaced: on gpu-b.")

    console.goto(f"{live_server.url}{page_of('llama')}?tab=rule")
    console.get_by_role("link", name="What if?").last.click()
    expect(console.get_by_label("Minimum", exact=True)).to_have_value("2")
    console.get_by_label("Minimum", exact=True).fill("4")
    console.get_by_role("button", name="What would happen?").click()
    expect(console.locator("#answer")).to_contain_text("1 rule cannot be kept.")
    assert ModelSchedulingConfig.objects.get().min_replicas == 1
    assert BackendNode.objects.filter(drain_requested_at=None).count() == 2


def test_a_drain_is_watched_and_called_off_by_mouse(
    console: Page, live_server: Any, register: Register
) -> None:
    node = BackendNode.objects.get(pk=machine(register, "gpu-a"))
    make_replica(node, in_flight=2)
    draining.drain(node, by="tests", reason="new disk", now=NOW, deadline=None)
    console.goto(f"{live_server.url}/admin/nodes/backendnode/{node.pk}/change/")
    panel = console.locator("#drain")
    expect(panel).to_contain_text("1 replica left, 2 requests in flight.")
    panel.get_by_role("button", name="Cancel the drain").click()
    console.locator("#dialog").get_by_role("button", name="Resume").click()
    expect(console.get_by_text("gpu-a is resumed.")).to_be_visible()
    expect(panel).to_have_count(0)


def test_unload_move_and_delete_ask_before_they_do_anything(
    console: Page, live_server: Any, register: Register
) -> None:
    node = BackendNode.objects.get(pk=machine(register, "gpu-a"))
    machine(register, "gpu-b")
    make_model()
    make_replica(node, config_revision="r1", in_flight=1)
    for verb, sentence in (
        ("Move", "A replica is loaded on the other node first"),
        ("Unload", "1 request is running on it."),
    ):
        console.goto(live_server.url + page_of("llama"))
        console.get_by_role("link", name=verb, exact=True).click()
        expect(console.get_by_text(sentence)).to_be_visible()
        console.get_by_role("link", name="Back", exact=True).click()
        expect(console.get_by_role("link", name="Replicas").last).to_be_visible()

    console.get_by_role("link", name="Delete").click()
    dialog = console.locator("#dialog")
    expect(dialog.get_by_text("Delete this model?")).to_be_visible()
    dialog.get_by_text("Force").click()
    dialog.get_by_role("button", name="Delete").click()
    expect(console.get_by_text("llama is deleted")).to_be_visible()
    assert console.url == live_server.url + MODELS
    assert not ModelLoadInfo.objects.exists()
