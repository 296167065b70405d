import sys
from typing import Any
from playwright.sync_api import Page
sys.path.insert(0, "/tmp")
def test_shots(console: Page, live_server: Any) -> None:
    from seed import seed
    import os
    from tests.factories import NOW
    base = live_server.url + "/admin/"
    only = os.environ.get("SHOTS", "").split(",")
    def shot(name, path):
        if only != [""] and name not in only: return
        console.goto(base + path); console.wait_for_timeout(400)
        console.screenshot(path=f"/tmp/shots/{name}.png", full_page=True)
    shot("empty-ops", "backendops/operation/"); shot("empty-dead", "backendops/pendingbackendop/"); shot("empty-backends", "backendops/nodebackend/"); shot("empty-index","")
    r = seed()
    shot("ops", "backendops/operation/"); shot("run", f"backendops/operation/{r['run'].pk}/change/")
    shot("partial", f"backendops/operation/{r['partial'].pk}/change/"); shot("unconf", f"backendops/operation/{r['unconfirmed'].pk}/change/"); shot("canc", f"backendops/operation/{r['cancelling'].pk}/change/")
    shot("install", "backendops/operation/install/?backend=vllm&select=missing"); shot("dead", "backendops/pendingbackendop/")
    shot("backends", "backendops/nodebackend/"); shot("backend", "backendops/nodebackend/one/?name=vllm")
    shot("ntab-b", f"nodes/backendnode/{r['node'].pk}/change/?tab=backends"); shot("ntab-o", f"nodes/backendnode/{r['node'].pk}/change/?tab=operations")
    shot("index", "")
    if only == [""] or "preview" in only:
        console.goto(base + "backendops/operation/install/?backend=vllm&select=compatible"); console.get_by_role("button", name="Preview").click(); console.wait_for_timeout(400); console.screenshot(path="/tmp/shots/preview.png", full_page=True)
    console.evaluate("localStorage.setItem('_x_adminTheme', '\"dark\"')")
    shot("dark-run", f"backendops/operation/{r['run'].pk}/change/"); shot("dark-ops", "backendops/operation/"); shot("dark-install", "backendops/operation/install/?backend=vllm")
    console.set_viewport_size({"width": 420, "height": 900})
    shot("narrow-run", f"backendops/operation/{r['run'].pk}/change/"); shot("narrow-ops", "backendops/operation/")
