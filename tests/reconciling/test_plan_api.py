from typing import Any

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from backendops.models import GalleryBackend, NodeInventory
from clustermgr import tokens
from scheduling.models import LoadJob
from scheduling.services import reconciling
from tests.factories import GIB, NOW, make_model, make_node, make_replica, make_rule

PLAN, WHY = "/api/scheduling/plan", "/api/scheduling/why"


def ask(api: APIClient, **body: Any) -> Any:
    return api.post(PLAN, body, format="json")


def test_a_program_asks_what_a_drain_would_do(api: APIClient) -> None:
    make_replica(make_node("gpu-1"), config_revision="r1")
    make_node("gpu-2")
    make_model()
    make_rule(min_replicas=1)
    answer = ask(api, drain=["gpu-1"])
    assert answer.status_code == 200
    assert answer.data["place"][0]["node"] == "gpu-2"
    assert not LoadJob.objects.exists()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"drains": ["gpu-1"]}, "A plan knows no 'drains'; did you mean drain?"),
        ({"rules": {"llama": {"minreplicas": 2}}}, "did you mean min_replicas?"),
    ],
)
def test_a_slip_of_the_finger_is_no_all_clear(
    api: APIClient, body: dict[str, Any], words: str
) -> None:
    make_model()
    refused = ask(api, **body)
    assert refused.status_code == 400
    assert words in refused.data["detail"]


def test_a_program_asks_for_a_model_that_does_not_exist_yet(api: APIClient) -> None:
    make_node("gpu-1", total_vram=24 * GIB, available_vram=8 * GIB)
    new = {"name": "qwen", "min_replicas": 3, "vram_bytes": 4 * GIB}
    starved = ask(api, models=[new]).data["starved"][0]
    assert starved["missing"] == 2
    assert "raise slots on gpu-1 to 2" in starved["smallest_fix"]


def test_a_new_model_goes_only_where_its_backend_can_run(api: APIClient) -> None:
    GalleryBackend.objects.create(
        name="whisper", gallery="main", gallery_url="https://main.example/index", checked_at=NOW
    )
    NodeInventory.objects.create(node=make_node("gpu-1"), observed_at=NOW)
    new = {"name": "qwen", "min_replicas": 1, "backend": "nonesuch"}
    answer = ask(api, models=[new]).data
    assert answer["place"] == []
    assert answer["starved"][0]["smallest_fix"] == "install the backend nonesuch on gpu-1"
    del new["backend"]
    assert [one["node"] for one in ask(api, models=[new]).data["place"]] == ["gpu-1"]


def test_a_program_hears_which_loads_would_be_given_up(api: APIClient) -> None:
    make_model()
    make_rule(min_replicas=2)
    for name in ("gpu-1", "gpu-2"):
        make_node(name)
    reconciling.tick(now=NOW)
    youngest = LoadJob.objects.filter(model_name="llama").latest("pk")
    rule = {"min_replicas": 0, "max_replicas": 1}
    answer = ask(api, rules={"llama": rule}).data
    assert [one["job"] for one in answer["cancel"]] == [youngest.pk]
    assert answer["cancel"][0]["reason"] == "More run or load than max_replicas (1) allows."


def test_why_over_http(api: APIClient) -> None:
    make_node("gpu-1", cordoned_at=NOW)
    make_model("org/llama")
    make_rule("org/llama", min_replicas=1)
    answer = api.get(WHY, {"model": "org/llama"})
    assert answer.data["smallest_fix"] == "uncordon gpu-1"
    assert answer.data["verdicts"][0]["why"] == "it is cordoned"


@pytest.mark.parametrize(
    "body",
    [
        {"drain": "gpu-1"},
        {"rules": {"llama": {"min_replicas": -1}}},
        {"rules": {"llama": {"min_replicas": 3, "max_replicas": 1}}},
        {"rules": {"llama": {"spread_all": True, "min_replicas": 1}}},
        {"rules": {"llama": {"min_replicas": "many"}}},
        {"rules": [1]},
        {"models": [{"vram_bytes": -1, "name": "x"}]},
        {"models": [{"min_replicas": 1}]},
    ],
)
def test_a_question_that_means_nothing_is_refused(api: APIClient, body: dict[str, Any]) -> None:
    make_model()
    assert ask(api, **body).status_code == 400


def test_a_question_that_contradicts_the_stored_rule_is_refused(api: APIClient) -> None:
    make_model()
    make_rule(min_replicas=1, max_replicas=2)
    refused = ask(api, rules={"llama": {"min_replicas": 4}})
    assert refused.status_code == 400
    assert "min_replicas (4) is above max_replicas (2)" in refused.data["detail"]


@pytest.mark.parametrize("body", [{"drain": ["nobody"]}, {"rules": {"nothing": {}}}])
def test_unknown_names_are_told(api: APIClient, body: dict[str, Any]) -> None:
    assert ask(api, **body).status_code == 404


def test_a_broken_selector_is_an_answer_not_an_error(api: APIClient) -> None:
    make_model()
    answer = ask(api, rules={"llama": {"selector": "tier=(", "min_replicas": 1}})
    assert answer.data["starved"][0]["smallest_fix"] == "correct the rule"


def test_why_needs_a_model_that_is_known(api: APIClient) -> None:
    assert api.get(WHY).status_code == 400
    assert api.get(WHY, {"model": "nothing"}).status_code == 404


def test_only_those_who_may_see_rules_may_ask(db: None) -> None:
    _, secret = tokens.issue(User.objects.create_user("guest"), name="tests", now=NOW)
    client = APIClient()
    assert client.post(PLAN, {}, format="json").status_code == 401
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {secret}")
    assert client.post(PLAN, {}, format="json").status_code == 403
