from dataclasses import replace
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from clustermgr.lib.natsauth import Key, Kind
from nodes.models import ClusterEvent, JoinToken
from nodes.services import events, jointokens
from nodes.states import Severity
from tests.factories import NOW, make_node, make_pending

ADD = reverse("admin:add_worker")
EVENTS = reverse("admin:nodes_clusterevent_changelist")
INDEX = reverse("admin:index")


def raise_attention() -> ClusterEvent:
    return events.record(
        "node.went_offline",
        actor="system",
        now=NOW,
        node=make_node(),
        reason="No heartbeat for 64 s.",
        severity=Severity.ATTENTION,
    )


def test_the_new_token_works_and_is_shown_once(root: Client) -> None:
    page = root.post(ADD, {"name": "rack 3", "labels": "tier=fast\nzone=a", "lifetime": "24"})
    secret = page.context["secret"]
    text = page.content.decode()
    assert f"LOCALAI_REGISTRATION_TOKEN={secret}" in text
    assert "LOCALAI_REGISTER_TO=http://testserver" in text
    token = jointokens.authenticate(secret, source="x", now=JoinToken.objects.get().created_at)
    assert token.labels == {"tier": "fast", "zone": "a"}
    assert "no-store" in page.headers["Cache-Control"]
    tokens = root.get(reverse("admin:nodes_jointoken_changelist"))
    assert secret not in tokens.content.decode()


def test_workers_may_reach_nats_by_an_address_of_their_own(root: Client, settings: Any) -> None:
    url = "tls://bus.example:4222"
    settings.CLUSTER = replace(settings.CLUSTER, worker_nats_url=url)
    assert f"LOCALAI_NATS_URL={url}" in root.post(ADD, {"name": "rack 3"}).content.decode()


def test_a_locked_bus_makes_the_worker_wait_for_its_credentials(
    root: Client, settings: Any
) -> None:
    seed = Key.generate(Kind.ACCOUNT).seed
    open_page = root.post(ADD, {"name": "rack 3"}).content.decode()
    settings.CLUSTER = replace(settings.CLUSTER, nats_account_seed=seed)
    page = root.post(ADD, {"name": "rack 4"}).content.decode()
    assert "LOCALAI_NATS_REQUIRE_AUTH=true" in page
    assert "The bus is open" not in page
    assert "LOCALAI_NATS_REQUIRE_AUTH" not in open_page
    assert "The bus is open" in open_page
    assert seed not in page


def test_the_password_of_nats_is_never_shown(root: Client, settings: Any) -> None:
    text = root.post(ADD, {"name": "rack 3"}).content.decode()
    assert "LOCALAI_NATS_URL=nats://127.0.0.1:" in text
    assert settings.CLUSTER.nats_url not in text


@pytest.mark.parametrize(
    ("filled", "sentence"),
    [
        ({"name": ""}, "This field is required."),
        ({"name": "taken"}, "There already is a join token named taken."),
        ({"name": "x", "labels": "tier"}, "A label is written key=value."),
        ({"name": "x", "max_nodes": "0"}, "greater than or equal to 1"),
    ],
)
def test_a_token_that_cannot_be_is_refused(
    root: Client, filled: dict[str, str], sentence: str
) -> None:
    jointokens.issue("taken", by="ada", now=NOW)
    assert sentence in root.post(ADD, filled).content.decode()
    assert JoinToken.objects.count() == 1


def test_a_revoked_token_stays_in_the_list(root: Client) -> None:
    token, _ = jointokens.issue("old", by="ada", now=NOW)
    url = reverse("admin:nodes_jointoken_revoke", args=[token.pk])
    root.post(url, {"_form_submitted": "true", "reason": "leaked"})
    token.refresh_from_db()
    assert token.revoked_by == "root"
    assert "revoked" in root.get(reverse("admin:nodes_jointoken_changelist")).content.decode()


def test_an_event_waits_on_top_until_somebody_acknowledges_it(operator: Client) -> None:
    event = raise_attention()
    assert "Waiting for somebody to look" in operator.get(EVENTS).content.decode()
    url = reverse("admin:nodes_clusterevent_acknowledge", args=[event.pk])
    operator.post(url, {"_form_submitted": "true"})
    event.refresh_from_db()
    assert event.acknowledged_by == "operator"
    assert "Nothing waits for you." in operator.get(EVENTS).content.decode()


def test_many_events_are_acknowledged_at_once(operator: Client) -> None:
    event = raise_attention()
    chosen = {"action": "acknowledge_selected", "_selected_action": [event.pk], "index": 0}
    operator.post(EVENTS, chosen)
    event.refresh_from_db()
    assert event.acknowledged_by == "operator"


def test_events_are_narrowed_by_kind_node_severity_and_acknowledgement(root: Client) -> None:
    event = raise_attention()
    jointokens.issue("rack", by="ada", now=NOW)
    filters = ({"about": "node."}, {"severity__exact": "attention"}, {"open": "yes"})
    for asked in (*filters, {"node__id__exact": str(event.node_id)}):
        assert list(root.get(EVENTS, asked).context["cl"].result_list) == [event], asked


def test_badges_appear_only_when_somebody_is_wanted(root: Client) -> None:
    def badges() -> dict[str, int]:
        items = root.get(INDEX).context["sidebar_navigation"][0]["items"]
        return {item["title"]: item["badge"] for item in items if "badge" in item}

    assert badges() == {}
    raise_attention()
    make_pending()
    assert badges() == {"Nodes": 1, "Events": 1}


def test_the_overview_lists_what_needs_attention(root: Client) -> None:
    raise_attention()
    make_pending("new-box")
    make_node("dead-box", liveness="offline", liveness_reason="No heartbeat.")
    for url in (INDEX, reverse("admin:fleet")):
        text = root.get(url).content.decode()
        for word in ("new-box", "dead-box", "No heartbeat for 64 s."):
            assert word in text


def test_the_overview_costs_the_same_however_many_nodes(
    root: Client, django_assert_num_queries: Any
) -> None:
    for number in range(30):
        make_node(f"n-{number}", liveness="offline")
    with django_assert_num_queries(11):
        root.get(reverse("admin:fleet"))
