"""An operator's whole walk by mouse, in front of a system in which nothing is played."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.embedded.running import ROOT, Up
from tests.services import free_port, free_ports, until

pytestmark = pytest.mark.timeout(600)

NAMES = ("gpu-1", "gpu-2", "gpu-3", "gpu-4")
UNLUCKY = "gpu-3"
BACKEND = "reference"  # of each worker's own gallery: 6 MiB
RATE = "768KiB"  # a second: an install takes long enough to be looked at twice
MOVING = re.compile(r"^[1-9]\d?$")  # neither 0 nor 100
POSTPONE = """
    UPDATE backendops_pendingbackendop SET due_at = due_at + interval '1 hour'
     WHERE state = 'failed' RETURNING id
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    up: Up
    home: Path  # of the workers

    @property
    def url(self) -> str:
        return self.up.run()["url"]

    @property
    def archive(self) -> Path:
        """What the unlucky node would download."""
        [found] = (self.home / UNLUCKY / "gallery" / "archives").glob(f"{BACKEND}-1.1.0-*.tar.gz*")
        return found

    def spoil(self) -> None:
        self.archive.rename(f"{self.archive}.gone")

    def mend(self) -> None:
        self.archive.rename(str(self.archive).removesuffix(".gone"))

    def postpone(self) -> bool:
        """The back-off has full jitter: it must not come before the click that is tested."""
        with psycopg.connect(self.up.run()["database_url"], autocommit=True) as link:
            return len(link.execute(POSTPONE).fetchall()) == 1


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    """`manage.py up` and four real workers, all let in and listening."""
    knobs = {"OPS_EVERY": 2, "OPS_REAP_EVERY": 2, "AUTO_APPROVE_NODES": "true"}
    env = {f"CLUSTER_{name}": str(value) for name, value in knobs.items()}
    with ExitStack() as cleanup:
        up = Up(tmp_path / "data", **env).start()
        cleanup.callback(up.stop)
        for number, name in enumerate(NAMES):
            cleanup.callback(_end, _worker(up, name, tmp_path / "workers" / name, number))
        until(lambda: _healthy(up) == len(NAMES), seconds=180)
        yield System(up=up, home=tmp_path / "workers")


def _worker(up: Up, name: str, home: Path, number: int) -> subprocess.Popen[bytes]:
    facts = up.run()
    first = free_ports(10)
    env = {
        "LOCALAI_REGISTER_TO": facts["url"],
        "LOCALAI_NATS_URL": facts["nats_url"],
        "LOCALAI_NATS_REQUIRE_AUTH": "true",
        "LOCALAI_REGISTRATION_TOKEN": facts["registration_token"],
        "LOCALAI_NODE_NAME": name,
        "LOCALAI_ADDR": f"127.0.0.1:{first}",
        "LOCALAI_HTTP_ADDR": f"127.0.0.1:{free_port()}",
        "WORKER_STATE_DIR": str(home),
        "WORKER_DOWNLOAD_RATE": RATE,
        "WORKER_LOG_LEVEL": "warning",
    }
    return subprocess.Popen([sys.executable, "-m", "worker"], cwd=ROOT, env={**up.env, **env})


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait(60)


def _healthy(up: Up) -> int:
    statement = "SELECT count(*) FROM backendops_nodeinventory WHERE observed_at IS NOT NULL"
    with psycopg.connect(up.run()["database_url"]) as link:
        [(count,)] = link.execute(statement).fetchall()
    return int(count)


@pytest.fixture
def page(chrome: Browser, system: System) -> Iterator[Page]:
    facts = system.up.run()
    context = chrome.new_context(viewport={"width": 1600, "height": 1000})
    page = context.new_page()
    page.goto(f"{system.url}/admin/login/")
    page.get_by_label("Username").fill(facts["admin_user"])
    page.get_by_label("Password").fill(facts["admin_password"])
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Needs attention")).to_be_visible()
    yield page
    context.close()


def bar(page: Page, name: str) -> Any:
    return page.get_by_role("progressbar", name=f"Progress on {name}", exact=True)


def row(page: Page, name: str) -> Any:
    return page.locator("tr", has=page.get_by_role("link", name=name, exact=True))


def order(page: Page, backend: str, *names: str) -> None:
    page.get_by_role("link", name="Give an order").first.click()
    page.get_by_label("Backend", exact=True).fill(backend)
    page.get_by_role("button", name="Look").click()
    for name in names:
        page.get_by_role("checkbox", name=name).check()
    page.get_by_role("button", name="Preview").click()
    page.get_by_role("button", name=f"Install on {len(names)} node").click()
    expect(page.get_by_role("heading", name="What was asked")).to_be_visible()


def test_an_install_is_ordered_watched_left_reopened_retried_where_it_failed_and_dismissed(
    page: Page, system: System
) -> None:
    system.spoil()
    order(page, BACKEND, "gpu-1", "gpu-2", UNLUCKY)
    expect(bar(page, "gpu-1")).to_have_attribute("aria-valuenow", MOVING)
    expect(row(page, UNLUCKY)).to_contain_text("Tried 1 time.")
    expect(row(page, "gpu-4")).to_have_count(0)

    # The window is closed in mid-install; nothing of it lived there
    seen = int(bar(page, "gpu-1").get_attribute("aria-valuenow") or 0)
    address, context = page.url, page.context
    page.close()
    page = context.new_page()
    page.goto(address)
    assert int(bar(page, "gpu-1").get_attribute("aria-valuenow") or 0) >= seen
    for name in ("gpu-1", "gpu-2"):
        expect(row(page, name)).to_contain_text("succeeded")
        expect(row(page, name)).to_contain_text("Version 1.1.0")
    expect(page.locator("#strip")).to_contain_text("Install of reference failed")
    expect(page.locator("#operation-timeline")).to_contain_text("Installed on gpu-1")

    until(system.postpone)
    system.mend()
    page.get_by_role("button", name="Retry install of reference where it failed").click()
    page.locator("#dialog").get_by_role("button", name="Retry").click()
    expect(page.get_by_text("Retrying install reference on 1 node.")).to_be_visible()
    page.locator("dl").get_by_role("link", name="by admin").click()
    expect(row(page, UNLUCKY)).to_contain_text("succeeded")
    for name in ("gpu-1", "gpu-2", "gpu-4"):
        expect(row(page, name)).to_have_count(0)
    expect(page.locator("#strip")).to_be_empty()

    order(page, "no-such-backend", "gpu-4")
    dismiss = page.get_by_role("button", name="Dismiss install of no-such-backend")
    expect(dismiss).to_be_visible()
    expect(page.locator("#strip")).to_contain_text("Install of no-such-backend failed")
    dismiss.click()
    page.locator("#dialog").get_by_role("button", name="Dismiss").click()
    expect(page.get_by_text("It stays in the record.")).to_be_visible()
    expect(page.locator("#strip")).not_to_contain_text("no-such-backend")

    page.goto(f"{system.url}/admin/backendops/operation/?backend={BACKEND}")
    with page.expect_download() as saved:
        page.get_by_role("link", name="Export what is listed as CSV").click()
    lines = saved.value.path().read_text().splitlines()
    assert sorted(line.split(",")[8] for line in lines[1:]) == ["gpu-1", "gpu-2", *[UNLUCKY] * 2]
