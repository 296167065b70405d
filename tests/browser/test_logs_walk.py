import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from playwright.sync_api import Browser, Page, expect

from nodes.models import BackendNode
from nodes.services import environment
from tests.factories import NOW, make_node, make_replica
from tests.logs.served import web
from tests.logs.worker import SECRET, LogWorker, line
from tests.services import until


@pytest.fixture
def worker() -> Iterator[LogWorker]:
    with LogWorker().running() as server:
        server.logs = {
            "llama#0": [line("loading", second=1), line("cuda is slow", second=3, stream="stderr")],
            "llama#1": [line("<b>hello</b>", second=2)],
        }
        yield server


@pytest.fixture
def node(transactional_db: None, worker: LogWorker) -> BackendNode:
    token = environment.sync(SECRET, auto_approve=False, now=NOW)
    machine = make_node(http_address=worker.address, join_token=token)
    for index in (0, 1):
        make_replica(machine, "llama", index)
    return machine


@pytest.fixture
def page(chrome: Browser, node: BackendNode) -> Iterator[Page]:
    """A browser on the merged log of llama, in front of the real web process."""
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    with web() as place:
        context = chrome.new_context(viewport={"width": 1600, "height": 1000})
        session = client.cookies["sessionid"].value
        context.add_cookies([{"name": "sessionid", "value": session, "url": f"http://{place}"}])
        opened = context.new_page()
        opened.goto(f"http://{place}/admin/nodes/backendnode/{node.pk}/change/?tab=logs")
        opened.get_by_role("link", name="llama", exact=True).click()
        yield opened
        context.close()
    connection.close_pool()  # type: ignore[attr-defined]


def texts(page: Page) -> Any:
    return page.locator("[data-lines] li:not([hidden]) > :last-child")


def test_a_log_is_merged_sifted_searched_and_followed(page: Page, worker: LogWorker) -> None:
    expect(texts(page)).to_have_text(["loading", "<b>hello</b>", "cuda is slow"])
    expect(page.locator("[data-log-state]")).to_have_text("Live")
    until(lambda: bool(worker.sockets))
    worker.print("llama#0", "one more", second=4)
    expect(texts(page)).to_have_count(4)
    page.get_by_role("button", name="stderr").click()
    expect(texts(page)).to_have_text(["cuda is slow"])
    page.get_by_role("button", name="All").click()
    page.get_by_label("Search in this log").fill("CUDA")
    expect(page.locator("[data-lines] mark")).to_have_text(["cuda"])
    expect(page.locator("[data-found]")).to_have_text("1 of 4 lines")
    page.reload()
    expect(texts(page)).to_have_text(["cuda is slow"])
    page.get_by_role("link", name="#1").click()
    expect(texts(page)).to_have_text(["<b>hello</b>"])


def test_a_paused_log_waits_and_a_cleared_one_stays_empty(page: Page, worker: LogWorker) -> None:
    expect(texts(page)).to_have_count(3)
    until(lambda: bool(worker.sockets))
    page.get_by_role("button", name="Pause").click()
    worker.print("llama#0", "meanwhile", second=5)
    expect(page.get_by_role("button", name="Resume (1 new)")).to_be_visible()
    expect(texts(page)).to_have_count(3)
    page.get_by_role("button", name="Resume (1 new)").click()
    expect(texts(page)).to_have_count(4)
    page.get_by_role("button", name="Clear").click()
    expect(page.get_by_text("Cleared; new lines appear here.")).to_be_visible()
    worker.print("llama#0", "afterwards", second=6)
    expect(texts(page)).to_have_text(["afterwards"])


def test_a_lost_log_is_owned_up_to_and_comes_back(page: Page, worker: LogWorker) -> None:
    expect(texts(page)).to_have_count(3)
    until(lambda: bool(worker.sockets))
    worker.logs["llama#1"].append(line("in the gap", second=7))
    worker.hang_up()
    expect(page.locator("[data-log-state]")).to_contain_text("Not live, refreshed every 3 s")
    expect(texts(page)).to_have_count(4)
    expect(page.locator("[data-log-state]")).to_have_text("Live")


def test_what_is_shown_can_be_downloaded(page: Page) -> None:
    page.get_by_role("button", name="stderr").click()
    with page.expect_download() as text:
        page.get_by_role("link", name="Download").click()
    assert text.value.path().read_text() == "2030-01-01T12:00:03.5Z stderr cuda is slow\n"
    with page.expect_download() as document:
        page.get_by_role("link", name="JSON").click()
    assert document.value.suggested_filename == "llama.json"
    assert json.loads(document.value.path().read_text())[0]["stream"] == "stderr"
