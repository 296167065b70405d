from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.admin.utils import quote
from django.test import Client
from django.urls import reverse

from nodes.models import NodeModel
from nodes.services import labels
from nodes.states import ReplicaState
from scheduling.admin.modelpage import TABS
from scheduling.models import (
    LoadJob,
    ModelLoadInfo,
    ModelSchedulingConfig,
    PlacementDecision,
)
from scheduling.states import Cause, JobState
from tests.factories import GIB, NOW, make_job, make_model, make_node, make_replica, make_rule

MODELS = "admin:scheduling_modelloadinfo_changelist"
RULES = "admin:scheduling_modelschedulingconfig_changelist"
LISTS = (MODELS, RULES, "admin:scheduling_model_new", "admin:scheduling_import")


def page_of(name: str, tab: str = "replicas") -> str:
    return reverse("admin:scheduling_modelloadinfo_change", args=[quote(name)]) + f"?tab={tab}"


def text(client: Client, url: str) -> str:
    reply = client.get(url)
    assert reply.status_code == 200
    return reply.content.decode()


@pytest.fixture
def busy() -> ModelLoadInfo:
    """Wanted three times; one serves, one is outdated, one is on its way, one fits nowhere."""
    model = make_model("org/llama", options={"Model": "org/llama", "ContextSize": 8192})
    node = make_node()
    make_rule("org/llama", min_replicas=3, unsatisfiable_reason="No node has a free slot.")
    make_replica(node, "org/llama", 0, config_revision="r1", in_flight=2)
    make_replica(node, "org/llama", 1, outdated_at=NOW)
    make_job(
        node,
        "org/llama",
        2,
        state=JobState.STAGING,
        lease_until=NOW,
        started_at=NOW,
        progress_at=NOW + timedelta(seconds=10),
        current_bytes=GIB,
        total_bytes=4 * GIB,
        percentage=25,
    )
    PlacementDecision.objects.create(
        at=NOW,
        model_name="org/llama",
        cause=Cause.FLOOR,
        summary="No node fits.",
        smallest_fix="uncordon gpu-2",
        verdicts=[
            {"node": "x", "name": "gpu-2", "fits": False, "why": "It is cordoned.", "score": []}
        ],
    )
    return model


@pytest.mark.parametrize("name", LISTS)
def test_every_page_opens_with_nothing_to_show(root: Client, name: str) -> None:
    assert root.get(reverse(name)).status_code == 200


def test_an_empty_list_says_what_to_do_next(operator: Client) -> None:
    assert "No model is defined yet" in text(operator, reverse(MODELS))
    assert "No rule says what should run" in text(operator, reverse(RULES))


@pytest.mark.parametrize("tab", [*TABS, "no-such-tab"])
def test_every_tab_of_a_model(root: Client, busy: ModelLoadInfo, tab: str) -> None:
    text(root, page_of(busy.pk, tab))


def test_row_71_the_list_tells_wanted_running_loading_and_why_not(
    viewer: Client, busy: ModelLoadInfo
) -> None:
    for name in (MODELS, RULES):
        shown = text(viewer, reverse(name))
        assert "at least 3" in shown
        assert "of 3</span>" in shown
        assert "1 loading" in shown
        assert "1 replica to replace" in shown
        assert "No node has a free slot." in shown
    assert "1 node matches" in text(viewer, reverse(RULES))


def test_a_models_page_tells_progress_eta_and_each_nodes_verdict(
    viewer: Client, busy: ModelLoadInfo
) -> None:
    replicas = text(viewer, page_of(busy.pk))
    assert "1 GiB of 4 GiB" in replicas
    assert "30 s left" in replicas
    assert "to replace" in replicas
    decisions = text(viewer, page_of(busy.pk, "decisions"))
    assert "To mend it: uncordon gpu-2." in decisions
    assert "It is cordoned." in decisions


def test_a_rule_for_a_model_nobody_defined_is_pointed_at(root: Client) -> None:
    rule = make_rule("ghost", min_replicas=1)
    assert "?name=ghost" in text(root, reverse(MODELS))
    page = reverse("admin:scheduling_modelschedulingconfig_change", args=[rule.pk])
    assert "Nobody has defined this model" in text(root, page)


def test_a_refresh_replaces_only_cells_and_says_that_it_is_one(
    viewer: Client, busy: ModelLoadInfo
) -> None:
    reply = viewer.get(
        reverse("admin:scheduling_live"), {"model": [busy.pk, "ghost"], "running": "1"}
    )
    assert reply.headers["X-Live"] == "1"
    shown = reply.content.decode()
    assert shown.count('hx-swap-oob="true"') == 7
    assert "1 loading" in shown


def test_a_selector_says_while_it_is_written_how_many_nodes_it_means(operator: Client) -> None:
    labels.merge_admin(make_node(), {"tier": "fast"}, by="tests", now=NOW)
    make_node("gpu-2")
    url = reverse("admin:scheduling_matches")
    assert "matches <b>1</b> of 2 nodes" in text(operator, f"{url}?selector=tier%3Dfast")
    assert "matches <b>2</b> of 2 nodes" in text(operator, url)
    assert "nothing can be placed" in text(operator, f"{url}?selector=tier%3Dslow")
    assert "The selector cannot be read" in text(operator, f"{url}?selector=tier%20in%20(")


def test_a_model_is_defined_by_hand(operator: Client) -> None:
    form = {
        "name": "llama",
        "backend": "reference",
        "vram": "4 GiB",
        "o.ContextSize": "8192",
        "o.MMap": "true",
        "o.Options": "a:1\r\nb:2",
    }
    reply = operator.post(reverse("admin:scheduling_model_new"), form)
    assert reply.status_code == 302
    model = ModelLoadInfo.objects.get()
    assert model.options == {
        "Model": "llama",
        "ContextSize": 8192,
        "MMap": True,
        "Options": ["a:1", "b:2"],
    }
    assert (model.vram_bytes, model.created_by) == (4 * GIB, "operator")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"o.ContextSize": "many"}, "ContextSize cannot be read."),
        ({"o.ContextSize": "99999999999"}, "ContextSize must be between"),
        ({"vram": "-1"}, "is no size"),
        ({"backend": ""}, "The model needs a backend."),
        ({"name": "a#b"}, "is no name for a model"),
        ({"o.GrammarTriggers": "["}, "GrammarTriggers cannot be read."),
    ],
)
def test_what_cannot_be_meant_comes_back_with_a_sentence(
    operator: Client, changes: dict[str, str], words: str
) -> None:
    form = {"name": "llama", "backend": "reference", "o.Threads": "4", **changes}
    reply = operator.post(reverse("admin:scheduling_model_new"), form)
    assert words in reply.content.decode()
    assert not ModelLoadInfo.objects.exists()


def test_an_edit_says_how_many_replicas_it_takes_out_of_service(operator: Client) -> None:
    model = make_model()
    make_replica(make_node(), config_revision="r1")
    form = {"model": "llama", "version": "1", "backend": "reference", "o.Threads": "4"}
    reply = operator.post(reverse("admin:scheduling_model_save"), form, follow=True)
    assert "llama is saved; 1 replica to replace." in reply.content.decode()
    stale = operator.post(reverse("admin:scheduling_model_save"), form, follow=True)
    assert "was changed by somebody else" in stale.content.decode()
    model.refresh_from_db()
    assert model.version == 2


def test_many_are_imported_by_hand_or_none(operator: Client) -> None:
    url = reverse("admin:scheduling_import")
    bad = operator.post(url, {"text": "- name: a\n  backend: x\n- name: b"})
    assert "Model 2: The model needs a backend." in bad.content.decode()
    assert not ModelLoadInfo.objects.exists()
    good = operator.post(url, {"text": "- name: a\n  backend: x"}, follow=True)
    assert "Defined 1, edited 0, left alone 0." in good.content.decode()


def test_a_rule_is_made_changed_and_deleted_by_hand(operator: Client) -> None:
    make_model()
    save = reverse("admin:scheduling_rule_save")
    form = {
        "model_name": "llama",
        "mode": "scale",
        "min_replicas": "1",
        "max_replicas": "2",
        "selector": "tier=fast",
        "strategy": "binpack",
        "tolerations": "spot\ndedicated=ml:NoSchedule",
        "pinned": "on",
        "priority": "5",
    }
    reply = operator.post(save, form, follow=True)
    assert "The rule of llama is saved: 1 to 2." in reply.content.decode()
    rule = ModelSchedulingConfig.objects.get()
    assert (rule.selector, rule.strategy, rule.pinned) == ("tier=fast", "binpack", True)
    assert rule.tolerations == [
        {"key": "spot"},
        {"key": "dedicated", "value": "ml", "effect": "NoSchedule"},
    ]
    assert "dedicated=ml:NoSchedule" in text(operator, page_of("llama", "rule"))
    operator.post(save, {**form, "mode": "spread", "version": "1"})
    rule.refresh_from_db()
    assert (rule.spread_all, rule.min_replicas, rule.max_replicas) == (True, 0, 0)
    for changes, words in (
        ({"min_replicas": "3"}, "is more than max_replicas"),
        ({"selector": "a in ("}, "The selector cannot be read"),
        ({"mode": "?"}, "Choose a mode"),
        ({"version": "1"}, "was changed by somebody else"),
    ):
        refused = operator.post(save, {**form, "version": "2", **changes}, follow=True)
        assert words in refused.content.decode()
    operator.post(reverse("admin:scheduling_rule_remove"), {"model_name": "llama"})
    assert not ModelSchedulingConfig.objects.exists()


def test_row_66_unloading_warns_with_the_number_of_requests(operator: Client) -> None:
    make_model()
    replica = make_replica(make_node(), in_flight=3)
    url = reverse("admin:scheduling_replica", args=[replica.pk, "unload"])
    assert "3 requests are running on it." in text(operator, url)
    refused = operator.post(url, follow=True)
    assert "3 requests are running on llama#0" in refused.content.decode()
    operator.post(url, {"force": "on"})
    assert NodeModel.objects.get().state == ReplicaState.UNLOADING


def test_row_77_looking_changes_nothing_and_a_viewer_may_only_look(
    viewer: Client, operator: Client, busy: ModelLoadInfo
) -> None:
    replica = NodeModel.objects.filter(state=ReplicaState.LOADED).first()
    assert replica is not None
    posts = {
        reverse("admin:scheduling_model_new"): {"name": "x", "backend": "y"},
        reverse("admin:scheduling_import"): {"text": "[]"},
        reverse("admin:scheduling_model_save"): {"model": busy.pk, "backend": "y"},
        reverse("admin:scheduling_rule_save"): {"model_name": busy.pk, "mode": "pin"},
        reverse("admin:scheduling_rule_remove"): {"model_name": busy.pk},
        reverse("admin:scheduling_replica", args=[replica.pk, "unload"]): {"force": "on"},
    }
    for url, form in posts.items():
        assert viewer.post(url, form).status_code == 403, url
        operator.get(url)
    busy.refresh_from_db()
    assert (busy.version, busy.backend) == (1, "reference")
    assert ModelSchedulingConfig.objects.get().min_replicas == 3
    replica.refresh_from_db()
    assert replica.state == ReplicaState.LOADED
    shown = text(viewer, page_of(busy.pk))
    assert "Unload" not in shown
    assert "Load now" not in shown


def press(client: Client, verb: str, name: str, **form: str) -> None:
    """What the theme's dialog sends."""
    url = reverse(f"admin:scheduling_modelloadinfo_{verb}", args=[quote(name)])
    reply = client.post(url, {**form, "_form_submitted": "1"}, headers={"HX-Request": "true"})
    assert reply.status_code == 200


@pytest.mark.parametrize("name", ["llama", "org/llama"])
def test_buttons_load_and_unload_whatever_the_name(operator: Client, name: str) -> None:
    make_model(name)
    make_node()
    assert "Load now" in text(operator, page_of(name))
    press(operator, "load", name, node="gpu-1")
    job = LoadJob.objects.get()
    assert (job.model_name, job.cause, job.requested_by) == (name, Cause.OPERATOR, "operator")
    press(operator, "unload", name)
    job.refresh_from_db()
    assert job.state == JobState.CANCELLED


def test_only_an_admin_deletes_a_model(operator: Client, root: Client) -> None:
    make_model()
    make_rule()
    url = reverse("admin:scheduling_modelloadinfo_forget", args=["llama"])
    assert operator.post(url, {"_form_submitted": "1", "force": "on"}).status_code == 403
    press(root, "forget", "llama")
    assert ModelLoadInfo.objects.exists()
    press(root, "forget", "llama", force="on")
    assert not ModelLoadInfo.objects.exists()


def test_a_replica_is_moved_by_hand(operator: Client) -> None:
    make_model()
    replica = make_replica(make_node(), config_revision="r1")
    make_node("gpu-2")
    url = reverse("admin:scheduling_replica", args=[replica.pk, "move"])
    assert '<option value="gpu-2">' in text(operator, url)
    reply = operator.post(url, {"to": "gpu-2"}, follow=True)
    assert "gpu-1 serves until that is done." in reply.content.decode()
    assert LoadJob.objects.get().replaces == replica


def test_why_is_answered_by_the_planner(viewer: Client) -> None:
    make_model()
    make_rule(min_replicas=1)
    make_node(cordoned_at=NOW)
    shown = text(viewer, reverse("admin:scheduling_why") + "?model=llama")
    assert "it is cordoned" in shown
    missing = text(viewer, reverse("admin:scheduling_why") + "?model=ghost")
    assert "There is no model ghost" in missing


def test_a_refused_rule_keeps_what_was_typed_and_says_at_which_field(operator: Client) -> None:
    make_model()
    make_rule(min_replicas=1)
    save = reverse("admin:scheduling_rule_save")
    form = {"model_name": "llama", "version": "1", "mode": "scale", "strategy": "spread"}
    form["priority"] = "7"
    reply = operator.post(save, {**form, "min_replicas": "5", "max_replicas": "2"})
    shown = reply.content.decode()
    assert reply.context["wrong"] == {
        "min_replicas": "min_replicas (5) is more than max_replicas (2)."
    }
    assert 'name="min_replicas" value="5"' in shown
    assert 'name="priority" value="7"' in shown
    assert 'name="version" value="1"' in shown
    unread = operator.post(save, {**form, "selector": "a in (", "tolerations": "spot"})
    assert list(unread.context["wrong"]) == ["selector"]
    assert 'value="a in ("' in unread.content.decode()
    assert ">spot</textarea>" in unread.content.decode()
    stale = operator.post(save, {**form, "version": "9"})
    assert "was changed by somebody else" in stale.context["refusal"]
    assert operator.get(save).status_code == 302  # a reload of that page


def test_a_refused_edit_keeps_what_was_typed_even_if_nobody_can_read_it(operator: Client) -> None:
    make_model()
    form = {"model": "llama", "version": "1", "backend": "", "o.GrammarTriggers": "["}
    shown = operator.post(reverse("admin:scheduling_model_save"), form).content.decode()
    assert "GrammarTriggers cannot be read." in shown
    assert ">[</textarea>" in shown
    assert 'name="version" value="1"' in shown
    assert operator.get(reverse("admin:scheduling_model_save")).status_code == 302


def test_who_deletes_a_model_lands_on_the_list(root: Client) -> None:
    make_model()
    url = reverse("admin:scheduling_modelloadinfo_forget", args=["llama"])
    here = {"HX-Request": "true", "HX-Current-URL": f"http://testserver{page_of('llama')}"}
    make_rule()
    refused = root.post(url, {"_form_submitted": "1"}, headers=here)
    assert refused.headers["HX-Redirect"] == page_of("llama")
    reply = root.post(url, {"_form_submitted": "1", "force": "on"}, headers=here)
    assert reply.headers["HX-Redirect"] == reverse(MODELS)


def test_what_waits_says_how_long_and_can_be_asked_about_in_the_list(
    viewer: Client, busy: ModelLoadInfo
) -> None:
    since = datetime.now(UTC) - timedelta(minutes=12, seconds=5)
    LoadJob.objects.all().delete()
    ModelSchedulingConfig.objects.update(unsatisfiable_since=since)
    for name in (MODELS, RULES):
        shown = text(viewer, reverse(name))
        assert "for 12 min" in shown
        assert "?model=org%2Fllama" in shown
    groups = viewer.get(reverse("admin:index")).context["sidebar_navigation"]
    badges = {item["title"]: item.get("badge") for group in groups for item in group["items"]}
    assert badges["Models"] == 1
