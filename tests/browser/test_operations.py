from datetime import UTC, datetime, timedelta
from typing import Any

from playwright.sync_api import Page, expect

from backendops.models import Operation, PendingBackendOp
from backendops.services import changes
from backendops.states import OpState
from nodes.models import BackendNode
from tests.factories import make_node

INSTALL = "/admin/backendops/operation/install/"


def become(name: str, state: OpState, **columns: Any) -> None:
    """What the executor does to one node's share."""
    now = datetime.now(UTC)
    if state == OpState.RUNNING:
        columns |= {"lease_until": now + timedelta(minutes=1), "sent_at": now, "started_at": now}
    if state in (OpState.SUCCEEDED, OpState.DEAD):
        columns |= {"finished_at": now}
    rows = PendingBackendOp.objects.filter(node__name=name).exclude(state=OpState.SUPERSEDED)
    assert changes.change(rows, state, now=now, **columns) == 1


def tell(name: str, percentage: float, **columns: Any) -> None:
    rows = PendingBackendOp.objects.filter(node__name=name, state=OpState.RUNNING)
    rows.update(percentage=percentage, progress_at=datetime.now(UTC), **columns)


def bar(page: Page, name: str) -> Any:
    return page.get_by_role("progressbar", name=f"Progress on {name}", exact=True)


def row(page: Page, name: str) -> Any:
    return page.locator("tr", has=page.get_by_role("link", name=name, exact=True))


def order_on_three_of_four(page: Page, server: str) -> Operation:
    page.goto(server + INSTALL)
    page.get_by_label("Backend").fill("llama-cpp")
    page.get_by_role("button", name="Look").click()
    for name in ("gpu-1", "gpu-2", "gpu-3"):
        page.get_by_role("checkbox", name=name).check()
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("heading", name="Install llama-cpp on 3 nodes?")).to_be_visible()
    assert not Operation.objects.exists()
    page.get_by_role("button", name="Install on 3 nodes").click()
    expect(page.get_by_role("heading", name="What was asked")).to_be_visible()
    return Operation.objects.get()


def test_installs_on_three_of_four_watches_it_and_retries_only_the_one_that_failed(
    console: Page, live_server: Any
) -> None:
    for number in range(1, 5):
        make_node(f"gpu-{number}", last_heartbeat=datetime.now(UTC))
    operation = order_on_three_of_four(console, live_server.url)
    page_of_it = console.url
    nodes = operation.ops.order_by("node__name").values_list("node__name", flat=True)
    assert list(nodes) == ["gpu-1", "gpu-2", "gpu-3"]

    for name in nodes:
        become(name, OpState.RUNNING)
    expect(bar(console, "gpu-1")).to_have_attribute("aria-valuenow", "0")
    for percentage in (20, 60):
        tell("gpu-1", percentage, phase="downloading", file_name="llama.tar")
        expect(bar(console, "gpu-1")).to_have_attribute("aria-valuenow", str(percentage))
    expect(row(console, "gpu-1")).to_contain_text("downloading llama.tar")
    expect(row(console, "gpu-3")).to_contain_text("no progress reported")

    become("gpu-1", OpState.SUCCEEDED)
    become("gpu-2", OpState.SUCCEEDED)
    become("gpu-3", OpState.DEAD, attempts=10, last_error="no space left on device")
    expect(row(console, "gpu-3")).to_contain_text("no space left on device")
    strip = console.locator("#strip")
    expect(strip).to_contain_text("Install of llama-cpp failed")
    expect(strip.locator(".cm-spin")).to_have_count(0)

    console.goto(live_server.url + "/admin/")
    expect(console.locator("#strip")).to_contain_text("gpu-3: no space left on device")
    console.goto(page_of_it)
    expect(row(console, "gpu-1")).to_contain_text("succeeded")

    console.get_by_role("button", name="Retry install of llama-cpp where it failed").click()
    console.locator("#dialog").get_by_role("button", name="Retry").click()
    expect(console.get_by_text("Retrying install llama-cpp on 1 node.")).to_be_visible()
    retry = Operation.objects.get(retry_of=operation)
    assert [op.node.name for op in retry.ops.all()] == ["gpu-3"]


def test_a_failure_stays_on_every_page_until_it_is_dismissed(
    console: Page, live_server: Any
) -> None:
    make_node("gpu-1", last_heartbeat=datetime.now(UTC))
    console.goto(f"{live_server.url}{INSTALL}?backend=vllm&select=healthy")
    console.get_by_role("button", name="Preview").click()
    console.get_by_role("button", name="Install on 1 node").click()
    become("gpu-1", OpState.RUNNING)
    become("gpu-1", OpState.DEAD, attempts=10, last_error="no such backend")
    dismiss = console.get_by_role("button", name="Dismiss install of vllm")
    expect(dismiss).to_be_visible()
    console.goto(live_server.url + "/admin/nodes/backendnode/")
    strip = console.locator("#strip")
    expect(strip).to_contain_text("Install of vllm failed")
    strip.get_by_role("link", name="Install of vllm failed").click()
    dismiss.click()
    console.locator("#dialog").get_by_role("button", name="Dismiss").click()
    expect(console.get_by_text("It stays in the record.")).to_be_visible()
    expect(strip).not_to_contain_text("vllm")
    assert Operation.objects.get().acknowledged_by == "root"


def test_a_choice_survives_turning_pages_and_narrowing(console: Page, live_server: Any) -> None:
    for number in range(60):
        make_node(f"many-{number:02}", last_heartbeat=datetime.now(UTC))
    console.goto(f"{live_server.url}{INSTALL}?backend=vllm")
    console.get_by_role("checkbox", name="many-00").check()
    console.get_by_role("button", name="Next").click()
    console.get_by_role("checkbox", name="many-59").check()
    console.get_by_label("Narrow the nodes").fill("many-3")
    console.get_by_role("button", name="Look").click()
    expect(console.get_by_text("2 chosen")).to_be_visible()
    console.get_by_role("checkbox", name="many-33").check()
    console.get_by_role("button", name="Preview").click()
    expect(console.get_by_role("heading", name="Install vllm on 3 nodes?")).to_be_visible()
    assert BackendNode.objects.count() == 60
