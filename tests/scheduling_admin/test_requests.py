from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from nodes.models import ClusterEvent, NodeModel
from scheduling.models import LoadJob, RouteLease, RouteTally
from scheduling.prefixes.chains import chain_of
from scheduling.prefixes.index import Seat
from scheduling.routing.asks import Ask
from scheduling.services import complaints, leasing, prefixing
from scheduling.services.complaints import Complaint
from scheduling.services.leasing import Terms, Wanted
from scheduling.states import Cause, RoutePolicy
from tests.factories import make_job, make_model, make_node, make_replica, make_rule
from tests.scheduling_admin.test_pages import page_of, text

TRY = "admin:scheduling_try"
COSTS = 18
PROMPT = "You are a helpful assistant. " * 40


def moment() -> datetime:
    return datetime.now(UTC)


def lease(model: str = "llama", *, holder: str = "gateway", age: timedelta | None = None) -> Ask:
    ask = Ask(model=model, holder=holder, ttl=timedelta(minutes=2))
    now = moment() - (age or timedelta())
    [given] = leasing.take([Wanted(ask=ask)], Terms(), now=now)
    assert given is not None
    return ask


def attempt(client: Client, prompt: str = "", **more: str) -> str:
    reply = client.post(reverse(TRY), {"model": "llama", "prompt": prompt, "do": "ask", **more})
    assert reply.status_code == 200
    return reply.content.decode()


def rows() -> tuple[int, int, int, int]:
    """What asking must not change."""
    busy = NodeModel.objects.exclude(in_flight=0).count()
    events = ClusterEvent.objects.count()
    return busy, events, RouteLease.objects.count(), LoadJob.objects.count()


def test_leases_are_shown_oldest_first_with_the_count_of_all(viewer: Client) -> None:
    make_model()
    make_replica(make_node())
    for number in range(51):
        lease(holder=f"gateway-{number:02}", age=timedelta(minutes=number + 1))
    shown = text(viewer, page_of("llama", "requests"))
    assert "51 requests hold a replica" in shown
    assert shown.index("gateway-50") < shown.index("gateway-49") < shown.index("gateway-01")
    assert "gateway-00" not in shown
    assert "51 min ago" in shown
    assert "/end/" not in shown  # a viewer looks


def test_the_page_costs_the_same_however_many_leases_there_are(
    queries: Callable[[str, int], None],
) -> None:
    make_model()
    make_replica(make_node())
    lease()
    queries(page_of("llama", "requests"), COSTS)
    for _ in range(30):
        lease()
        make_replica(make_node(f"n-{uuid4()}"))
    queries(page_of("llama", "requests"), COSTS)


def test_a_refresh_brings_leases_only_to_who_may_see_them(viewer: Client, client: Client) -> None:
    stranger = User.objects.create_user("stranger", is_staff=True)
    stranger.user_permissions.add(Permission.objects.get(codename="view_modelloadinfo"))
    client.force_login(stranger)
    make_model()
    make_replica(make_node())
    lease()
    url = reverse("admin:scheduling_live") + "?model=llama&requests=1"
    assert "1 request holds a replica" in text(viewer, url)
    assert "holds a replica" not in text(client, url)


def test_an_operator_ends_a_stuck_lease_and_the_event_names_both(
    operator: Client, viewer: Client
) -> None:
    make_model()
    replica = make_replica(make_node())
    lease(holder="crashed-gateway")
    stuck = RouteLease.objects.get()
    url = reverse("admin:scheduling_lease_end", args=[stuck.pk])
    assert viewer.post(url).status_code == 403
    assert "crashed-gateway" in text(operator, url)
    assert RouteLease.objects.exists()  # looking ends nothing
    reply = operator.post(url, follow=True)
    assert "The lease of crashed-gateway is ended." in reply.content.decode()
    replica.refresh_from_db()
    assert replica.in_flight == 0
    event = ClusterEvent.objects.get(kind="lease.ended")
    assert (event.actor, event.subject, event.node_id) == ("operator", "llama", replica.node_id)
    assert event.reason.startswith("crashed-gateway held llama#0 on gpu-1 since ")
    again = operator.post(url, follow=True)
    assert "That lease has ended by itself." in again.content.decode()
    assert ClusterEvent.objects.filter(kind="lease.ended").count() == 1


def test_a_replica_that_callers_complained_of_is_shown_with_their_words(viewer: Client) -> None:
    make_model()
    make_replica(make_node())
    lease()
    now = moment()
    complaints.hear(
        RouteLease.objects.get().pk,
        Complaint.UNREACHABLE,
        by="gateway",
        detail="connection refused",
        now=now,
    )
    shown = text(viewer, page_of("llama", "requests"))
    assert "Resting replicas" in shown
    assert "connection refused" in shown
    assert "rests until" in text(viewer, page_of("llama"))


def test_the_last_hour_is_told_per_policy_in_words(viewer: Client) -> None:
    make_model()
    minute = moment().replace(second=0, microsecond=0)
    counts = {"picks": 10, "hits": 7, "misses": 2, "pressure": 1, "regret": 5}
    RouteTally.objects.create(model_name="llama", minute=minute, **counts)
    RouteTally.objects.create(model_name="llama", minute=minute, shadow=True, lucky=3, **counts)
    RouteTally.objects.create(model_name="llama", minute=minute - timedelta(hours=2), **counts)
    shown = text(viewer, page_of("llama", "requests"))
    assert "Warm caches preferred: 10 requests" in shown
    assert "only measured (shadow): 10 requests" in shown
    assert shown.count(">70 %<") == 2
    assert shown.count(">0.50<") == 2
    assert ">30 %<" in shown  # by chance


def test_trying_a_request_tells_who_and_why_and_changes_nothing(viewer: Client) -> None:
    make_model()
    make_replica(make_node(), in_flight=0)
    make_replica(make_node("gpu-2"), in_flight=3)
    make_replica(make_node("gpu-3"), outdated_at=moment())
    before = rows()
    shown = attempt(viewer)
    assert "gpu-1 #0" in shown
    assert "It has the fewest requests in flight (0)." in shown
    assert "The model was edited since it was loaded." in shown
    assert rows() == before


def test_trying_a_name_that_no_model_can_have_is_refused_in_words(viewer: Client) -> None:
    make_model()
    shown = attempt(viewer, model="llama\x00")
    assert "model contains control characters." in shown


def test_trying_a_prompt_that_a_replica_has_seen(viewer: Client) -> None:
    make_model("trier")
    make_rule("trier", route_policy=RoutePolicy.PREFIX_CACHE)
    make_replica(make_node(), "trier")
    warm = make_replica(make_node("gpu-2"), "trier", in_flight=1)
    index, now = prefixing.default().index, moment().timestamp()
    seat = Seat(warm.pk, warm.node_id, warm.replica_index)
    index.record("trier", chain_of(PROMPT, model="trier"), seat, now=now)
    shown = attempt(viewer, PROMPT, model="trier")
    assert "It has seen 100% of this prompt." in shown
    assert "knows the prompt" in shown
    other = attempt(viewer, "Something else. " * 40, model="trier")
    assert "Nobody has seen enough of this prompt" in other
    index.forget("trier", warm.node_id)


def test_trying_a_session_tells_who_a_real_request_of_it_gets(viewer: Client) -> None:
    make_model()
    for name in "abcd":
        make_replica(make_node(name))
    ask = Ask(model="llama", holder="tests", ttl=timedelta(minutes=1), session="anna")
    [given] = leasing.take([Wanted(ask=ask)], Terms(), now=moment())
    assert given is not None
    leasing.release([given.id])
    shown = attempt(viewer, session="anna")
    assert f"{given.node_name} #0" in shown
    assert "It serves this session." in shown


def test_trying_where_nothing_is_loaded_tells_what_would_be_waited_for(viewer: Client) -> None:
    make_model()
    before = rows()
    assert "To mend it" in attempt(viewer)
    make_node()
    assert "A request would have it loaded on gpu-1, and wait." in attempt(viewer)
    assert rows() == before


def test_trying_while_it_loads_tells_of_that_load(viewer: Client) -> None:
    model = make_model()
    make_job(make_node(), config_revision=model.config_revision, due_at=moment())
    assert "would wait for the load under way" in attempt(viewer)


def test_a_load_is_begun_only_by_the_button_that_says_so(operator: Client, viewer: Client) -> None:
    make_model()
    make_node()
    form = {"model": "llama", "do": "load"}
    assert viewer.post(reverse(TRY), form).status_code == 403
    shown = operator.post(reverse(TRY), form).content.decode()
    assert "Its load is under way" in shown
    job = LoadJob.objects.get()
    assert (job.cause, job.requested_by) == (Cause.REQUEST, "operator")
    operator.post(reverse(TRY), form)
    assert LoadJob.objects.count() == 1
    assert not RouteLease.objects.exists()


def test_a_load_that_cannot_be_begun_says_why(operator: Client) -> None:
    make_model()
    shown = attempt(operator, do="load")
    assert "To mend it" in shown


@pytest.mark.parametrize("form", [{"model": "ghost"}, {"session": "x" * 513}, {"model": "a\0b"}])
def test_what_cannot_be_asked_is_refused_in_a_sentence(
    viewer: Client, form: dict[str, str]
) -> None:
    make_model()
    assert "cm-callout-title" in attempt(viewer, **form)


def test_nobody_tries_without_the_permission_to_see_leases(client: Client, db: None) -> None:
    client.force_login(User.objects.create_user("stranger", is_staff=True))
    make_model()
    assert client.post(reverse(TRY), {"model": "llama"}).status_code == 403
