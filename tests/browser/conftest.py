"""A real Chromium in front of a real server; loudly absent where there is none."""

import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.request import Request, urlopen

import pytest
from django.contrib.auth.models import User
from django.db import connection
from playwright.sync_api import Browser, Page, expect, sync_playwright

from nodes.services import jointokens
from tests.browser import chromium
from tests.factories import NOW

HERE = str(__file__).removesuffix("conftest.py")
MISSING = "NO CHROMIUM: what a mouse can do is NOT tested. Install one or set CHROMIUM=/path."
PASSWORD = "a long enough secret"

Register = Callable[..., str]

expect.set_options(timeout=60_000)  # milliseconds: Playwright's five seconds fail a busy machine


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if str(item.path).startswith(HERE):
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.django_db(transaction=True))
            item.add_marker(pytest.mark.xdist_group("browser"))
            item.add_marker(pytest.mark.skipif(chromium.find() is None, reason=MISSING))


@pytest.fixture(scope="module")
def chrome() -> Iterator[Browser]:
    """Not the plugin's, which lives as long as the session: Playwright's loop would run on in
    this thread, and every later test that starts one of its own would fail."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium.find(), args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def console(
    chrome: Browser, live_server: Any, transactional_db: None, queued: list[Any]
) -> Iterator[Page]:
    """A browser on the overview page, logged in as root."""
    User.objects.create_superuser("root", password=PASSWORD)
    context = chrome.new_context(viewport={"width": 1600, "height": 1000})
    page = context.new_page()
    page.goto(f"{live_server.url}/admin/login/")
    page.get_by_label("Username").fill("root")
    page.get_by_label("Password").fill(PASSWORD)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Needs attention")).to_be_visible()
    yield page
    context.close()
    # The server's threads keep their connections, and the database could not be dropped.
    connection.close_pool()  # type: ignore[attr-defined]


@pytest.fixture
def register(live_server: Any, transactional_db: None) -> Register:
    """What a worker does when it starts: over HTTP, with a token of its own."""
    _, secret = jointokens.issue("browser tests", by="tests", now=NOW)

    def post(name: str, **more: Any) -> str:
        body = {"name": name, "address": f"{name}.example:50051", "token": secret, **more}
        request = Request(
            f"{live_server.url}/api/node/register",
            data=json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {secret}", "Content-Type": "application/json"},
        )
        with urlopen(request) as reply:
            node_id: str = json.load(reply)["id"]
        return node_id

    return post
