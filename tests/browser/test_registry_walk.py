from datetime import timedelta
from typing import Any

from django.db.models import F
from playwright.sync_api import Page, expect

from nodes.models import BackendNode
from tests.browser.conftest import Register
from tests.factories import GIB

LIST = "/admin/nodes/backendnode/"


def test_a_worker_registers_shows_up_by_itself_and_is_approved_by_mouse(
    console: Page, live_server: Any, register: Register
) -> None:
    console.goto(live_server.url + LIST)
    expect(console.get_by_text("No nodes yet")).to_be_visible()
    register("gpu-a", gpu_vendor="nvidia", total_vram=24 * GIB, labels={"rack": "9"})
    callout = console.locator("#pending")
    expect(callout).to_contain_text("1 machine waits for approval")
    expect(callout).to_contain_text("gpu-a.example:50051")
    expect(callout).to_contain_text("rack=9")
    console.get_by_role("button", name="Approve gpu-a").click()
    expect(console.get_by_text("gpu-a is approved.")).to_be_visible()
    expect(console.locator("#result_list .cm-pill")).to_have_text("healthy")
    expect(callout).not_to_contain_text("gpu-a")


def test_approving_what_somebody_else_just_approved_is_a_sentence(
    console: Page, live_server: Any, register: Register
) -> None:
    node = register("gpu-a")
    console.goto(f"{live_server.url}{LIST}{node}/change/")
    console.get_by_role("link", name="Approve").click()
    expect(console.get_by_text("Approve this node?")).to_be_visible()
    other = console.context.new_page()
    other.goto(live_server.url + LIST)
    other.get_by_role("button", name="Approve gpu-a").click()
    expect(other.get_by_text("gpu-a is approved.")).to_be_visible()
    console.locator("#dialog").get_by_role("button", name="Approve").click()
    expect(console.get_by_text("gpu-a is already approved (by root at")).to_be_visible()


def test_a_refresh_changes_cells_and_keeps_the_selection(
    console: Page, live_server: Any, register: Register
) -> None:
    first = register("gpu-a")
    for name in ("gpu-b", "gpu-c"):
        register(name)
    console.goto(live_server.url + LIST)
    boxes = console.locator("input.action-select")
    boxes.nth(0).check()
    boxes.nth(1).check()
    BackendNode.objects.update(last_heartbeat=F("last_heartbeat") - timedelta(minutes=7))
    age = console.locator(f"#n-{first}-heartbeat .cm-age-bad")
    expect(age).to_have_text("7 min ago")
    assert [boxes.nth(number).is_checked() for number in range(3)] == [True, True, False]
    expect(console.locator(".action-counter")).to_contain_text("2 of 3 selected")


def test_selected_nodes_are_previewed_and_then_cordoned(
    console: Page, live_server: Any, register: Register
) -> None:
    for name in ("gpu-a", "gpu-b"):
        register(name)
    console.goto(live_server.url + LIST)
    console.locator("#action-toggle").check()
    console.locator("select[name=action]").select_option("cordon_selected")
    console.get_by_role("button", name="Run").click()
    expect(console.get_by_text("Touched: 2")).to_be_visible()
    console.get_by_label("Reason").fill("new fans")
    console.get_by_role("button", name="Cordon 2 nodes").click()
    expect(console.get_by_text("Cordoned: 2.")).to_be_visible()
    expect(console.locator("#result_list .cm-chip-warn")).to_have_count(2)


def test_a_node_is_drained_in_a_dialog_and_labelled_in_place(
    console: Page, live_server: Any, register: Register
) -> None:
    node = register("gpu-a")
    page = f"{live_server.url}{LIST}{node}/change/"
    console.goto(live_server.url + LIST)
    console.get_by_role("button", name="Approve gpu-a").click()
    expect(console.get_by_text("gpu-a is approved.")).to_be_visible()
    console.goto(page)
    console.get_by_role("link", name="Drain").click()
    console.get_by_label("Reason").fill("new fans")
    console.locator("#dialog").get_by_role("button", name="Drain").click()
    expect(console.get_by_text("gpu-a is being drained.")).to_be_visible()
    expect(console.locator(f"#n-{node}-status")).to_contain_text("draining")
    expect(console.locator(f"#n-{node}-facts")).to_contain_text("new fans")
    console.get_by_role("link", name="Labels").click()
    console.get_by_label("Key of the new label").fill("tier")
    console.get_by_label("Value of the new label").fill("fast")
    console.get_by_role("button", name="Set label").click()
    expect(console.get_by_text("gpu-a now has tier=fast.")).to_be_visible()
    expect(console.get_by_label("Value of tier")).to_have_value("fast")


def test_a_lost_refresh_is_owned_up_to(console: Page, live_server: Any, register: Register) -> None:
    register("gpu-a")
    console.goto(live_server.url + LIST)
    console.context.clear_cookies()
    warning = console.get_by_text("The refresh fails")
    expect(warning).to_be_visible()
