from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from backendops.models import GalleryBackend, NodeBackend, NodeInventory, Operation
from backendops.presenting import fleet
from backendops.states import OpState, Verb
from clustermgr.conf import GallerySource
from nodes.admin.nodepage import TABS
from nodes.models import BackendNode
from tests.backendops_admin.rows import many_nodes
from tests.factories import NOW, make_node, make_op

LIST = reverse("admin:backendops_nodebackend_changelist")
ONE = reverse("admin:backendops_backend")
UPGRADE_ALL = reverse("admin:backendops_upgrade_all")


def have(node: BackendNode, name: str = "vllm", **more: Any) -> NodeBackend:
    seen = datetime.now(UTC) - timedelta(minutes=4)
    columns = {"version": "1", "digest": "sha256:aaaa", "observed_at": seen, **more}
    return NodeBackend.objects.create(node=node, name=name, first_seen_at=NOW, **columns)


@pytest.fixture
def newer(settings: Any) -> None:
    """A gallery that has vllm 2."""
    sources = (GallerySource(name="g", url="https://g.example/index.yaml"),)
    settings.CLUSTER = settings.CLUSTER.__class__(
        **{
            **{name: getattr(settings.CLUSTER, name) for name in settings.CLUSTER.__slots__},
            "backend_galleries": sources,
        }
    )
    GalleryBackend.objects.create(
        gallery="g", gallery_url=sources[0].url, name="vllm", version="2", checked_at=NOW
    )


def row_of(page: Any, name: str) -> Any:
    return next(row for row in page.context["rows"] if row.name == name)


def test_row_60_drift_is_counted_and_named(root: Client) -> None:
    for name, digest in (("a", "sha256:aaaa"), ("b", "sha256:aaaa"), ("c", "sha256:bbbb")):
        have(make_node(name), digest=digest)
    page = root.get(LIST)
    row = row_of(page, "vllm")
    assert (row.installed, row.of, row.drifting) == (3, 3, ["c"])
    assert "1 drift" in page.content.decode()
    found = root.get(ONE, {"name": "vllm"}).context["found"]
    assert [(one.row.node.name, one.differs) for one in found] == [
        ("a", False),
        ("b", False),
        ("c", True),
    ]


def test_row_61_pages_show_ages_and_ask_nobody(root: Client, queued: list[Any]) -> None:
    node = make_node()
    have(node)
    for page in (
        root.get(LIST),
        root.get(ONE, {"name": "vllm"}),
        root.get(reverse("admin:nodes_backendnode_change", args=[node.pk]), {"tab": "backends"}),
    ):
        assert page.status_code == 200
    assert row_of(root.get(LIST), "vllm").oldest == "4 min ago"
    assert queued == []


def test_pending_work_is_counted_where_nothing_is_installed_yet(root: Client) -> None:
    make_op(make_node("a"), "vllm")
    make_op(make_node("b"), "vllm", state=OpState.FAILED)
    make_op(make_node("c"), "vllm", state=OpState.SUCCEEDED)
    row = row_of(root.get(LIST), "vllm")
    assert (row.installed, row.pending) == (0, 2)


def test_what_a_gallery_has_newer_is_shown(root: Client, newer: None) -> None:
    have(make_node())
    assert row_of(root.get(LIST), "vllm").upgrade == "2"
    text = root.get(reverse("admin:upgrades")).content.decode()
    assert "vllm" in text


def test_upgrade_all_shows_who_first_and_orders_only_what_was_chosen(
    root: Client, newer: None
) -> None:
    have(make_node("a"))
    page = root.get(UPGRADE_ALL)
    [step] = page.context["steps"]
    assert [node.name for node in step.nodes] == ["a"]
    assert not Operation.objects.exists()
    root.post(UPGRADE_ALL, {})
    assert not Operation.objects.exists()
    root.post(UPGRADE_ALL, {"backend": ["vllm"], "reason": "patch day"})
    operation = Operation.objects.get()
    assert (operation.verb, operation.reason) == (Verb.UPGRADE, "patch day")


def test_nothing_newer_is_a_plain_sentence(root: Client) -> None:
    assert "Nothing newer is known" in root.get(UPGRADE_ALL).content.decode()


@pytest.mark.parametrize("nodes", [50, 1000])
@pytest.mark.parametrize(("url", "count"), [(LIST, 13), (f"{ONE}?name=vllm", 15)])
def test_costs_the_same_queries_for_few_and_for_many(
    queries: Callable[[str, int], None], nodes: int, url: str, count: int
) -> None:
    NodeBackend.objects.bulk_create(
        NodeBackend(node=node, name="vllm", first_seen_at=NOW, observed_at=NOW)
        for node in many_nodes(nodes)
    )
    queries(url, count)


@pytest.mark.parametrize("asked", ["", "no such", "\x00", "x" * 400])
def test_a_backend_nobody_has_is_a_plain_sentence(root: Client, asked: str) -> None:
    page = root.get(ONE, {"name": asked})
    assert "No node told that it has" in page.content.decode()


def test_an_empty_fleet_says_so(root: Client) -> None:
    assert "No backend is installed anywhere yet" in root.get(LIST).content.decode()
    assert "No installed backend is called so" in root.get(LIST, {"q": "x\x00"}).content.decode()


def test_a_node_s_tab_tells_what_it_has_what_is_coming_and_when_it_told(root: Client) -> None:
    node = make_node()
    have(node, "vllm")
    have(node, "piper", is_system=True)
    make_op(node, "bark")
    told = datetime.now(UTC) - timedelta(minutes=4)
    NodeInventory.objects.create(node=node, observed_at=told, asked_at=told, error="no answer")
    page = reverse("admin:nodes_backendnode_change", args=[node.pk])
    text = root.get(page, {"tab": "backends"}).content.decode()
    for words in ("As the node told 4 min ago.", "in vain: no answer", "bark", "install queued"):
        assert words in text
    assert text.count("verb=delete") == 1  # not of what is part of the worker's image


def test_a_node_s_operations_tab_lists_the_newest_first(root: Client) -> None:
    node = make_node()
    for number in range(30):
        make_op(node, f"b-{number:02}", state=OpState.SUCCEEDED)
    page = reverse("admin:nodes_backendnode_change", args=[node.pk])
    first, second = (root.get(page, {"tab": "operations", "p": at}) for at in (1, 2))
    assert first.context["rows"][0][0].op.backend == "b-29"
    assert len(second.context["rows"]) == 5


def test_refresh_now_has_the_node_asked(
    root: Client, queued: list[Any], django_capture_on_commit_callbacks: Any
) -> None:
    node = make_node()
    with django_capture_on_commit_callbacks(execute=True):
        root.post(reverse("admin:backendops_refresh", args=[node.pk]))
    assert queued == [("backendops.look_at_node", str(node.pk))]


def test_tabs_stand_in_the_order_in_which_people_look_for_them() -> None:
    wanted = "overview replicas backends operations loads labels capacity logs events"
    assert list(TABS) == wanted.split()


def test_the_overview_tells_what_runs_what_failed_and_what_was_given_up(root: Client) -> None:
    index = reverse("admin:index")
    assert "Nothing is under way." in root.get(index).content.decode()
    node = make_node()
    make_op(node, "lost", state=OpState.DEAD)
    assert "1 order was given up" in root.get(index).content.decode()


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ("2030-01-02T03:04:05.678901+00:00", "2030-01-02 03:04 UTC"),
        ("2030-01-02T03:04:05+02:00", "2030-01-02 01:04 UTC"),
        ("2030-01-02T03:04:05Z", "2030-01-02 03:04 UTC"),
        ("2030-01-02T03:04:05", "2030-01-02T03:04:05"),  # whose time is it?
        ("yesterday", "yesterday"),
        ("", ""),
    ],
)
def test_a_workers_time_is_for_people_or_in_its_own_words(told: str, shown: str) -> None:
    assert fleet.moment(told) == shown


def test_what_a_gallery_tells_is_shown_and_only_web_links_can_be_followed(
    root: Client, newer: None
) -> None:
    GalleryBackend.objects.update(
        description="An <b>engine</b>",
        license="apache-2.0",
        icon="data:text/html,x",
        urls=["https://example.org/vllm", "javascript:alert(1)", "http://[bad", "ftp://x.example"],
    )
    page = root.get(ONE, {"name": "vllm"})
    assert (page.context["about"].links, page.context["about"].icon) == (
        ["https://example.org/vllm"],
        "",
    )
    text = page.content.decode()
    assert "An &lt;b&gt;engine&lt;/b&gt;" in text
    assert "javascript:" not in text


def test_what_is_installed_nowhere_can_be_found_and_installed(
    root: Client, viewer: Client, newer: None
) -> None:
    page = root.get(LIST)
    assert [entry.name for entry in page.context["offered"]] == ["vllm"]
    assert "Install vllm" in page.content.decode()
    assert "Install vllm" not in viewer.get(LIST).content.decode()
    assert root.get(LIST, {"q": "piper"}).context["offered"] == []
    have(make_node())
    assert root.get(LIST).context["offered"] == []


def test_a_backend_can_be_stopped_from_its_page_and_from_its_nodes(
    root: Client, viewer: Client
) -> None:
    node = make_node()
    have(node, is_system=True)
    tab = reverse("admin:nodes_backendnode_change", args=[node.pk]) + "?tab=backends"
    for url in (f"{ONE}?name=vllm", tab):
        assert "verb=stop" in root.get(url).content.decode()
        assert "verb=stop" not in viewer.get(url).content.decode()


def test_pages_are_called_the_same_everywhere(root: Client) -> None:
    crumbs = root.get(ONE, {"name": "vllm"}).content.decode()
    assert "Installed backends" not in crumbs
    letters = root.get(reverse("admin:backendops_pendingbackendop_changelist")).content.decode()
    assert "ode operations" not in letters
    assert "Dead letters" in letters
