"""Who holds what, by mouse; and a request that is tried without being made."""

from datetime import UTC, datetime, timedelta
from typing import Any

from playwright.sync_api import Page, expect

from scheduling.models import RouteLease
from scheduling.routing.asks import Ask
from scheduling.services import leasing
from scheduling.services.leasing import Terms, Wanted
from tests.factories import make_model, make_node, make_replica


def test_a_request_is_tried_and_a_stuck_lease_is_seen_and_ended(
    console: Page, live_server: Any
) -> None:
    make_model()
    make_replica(make_node())
    make_replica(make_node("gpu-2"))
    console.goto(f"{live_server.url}/admin/scheduling/modelloadinfo/llama/change/?tab=requests")
    console.get_by_label("Prompt").fill("Once upon a time")
    console.get_by_role("button", name="Ask only").click()
    decision = console.locator("#decision")
    expect(decision.get_by_text("this one")).to_be_visible()
    expect(decision.get_by_text("Nobody has seen enough of this prompt")).to_be_visible()
    assert not RouteLease.objects.exists()

    ask = Ask(model="llama", holder="crashed-gateway", ttl=timedelta(minutes=5))
    leasing.take([Wanted(ask=ask)], Terms(), now=datetime.now(UTC))
    # The page finds out by itself, and what was asked stays
    expect(console.get_by_text("1 request holds a replica")).to_be_visible()
    expect(decision.get_by_text("this one")).to_be_visible()
    console.get_by_role("link", name="End", exact=True).click()
    console.get_by_role("button", name="End it").click()
    expect(console.get_by_text("The lease of crashed-gateway is ended.")).to_be_visible()
    expect(console.get_by_text("No request holds a replica now.")).to_be_visible()
    assert not RouteLease.objects.exists()
