from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from scheduling.models import ModelSchedulingConfig
from tests.factories import make_model, make_node, make_replica, make_rule

BROKEN: list[dict[str, Any]] = [{"selector": "tier=("}, {"tolerations": {"not": "a list"}}]


@pytest.mark.parametrize("broken", BROKEN, ids=str)
def test_no_page_falls_over_a_rule_that_nobody_can_read(
    root: Client, broken: dict[str, Any]
) -> None:
    node = make_node()
    make_model()
    rule = make_rule(min_replicas=1)
    make_replica(node, config_revision="r1")
    ModelSchedulingConfig.objects.update(**broken)
    model = reverse("admin:scheduling_modelloadinfo_change", args=["llama"])
    telling = [
        reverse("admin:scheduling_modelloadinfo_changelist"),
        reverse("admin:scheduling_modelschedulingconfig_changelist"),
        reverse("admin:scheduling_why") + "?model=llama",
        model,
    ]
    others = [
        *(f"{model}?tab={tab}" for tab in ("rule", "decisions", "jobs", "requests", "definition")),
        reverse("admin:scheduling_modelschedulingconfig_change", args=[rule.pk]),
        reverse("admin:nodes_backendnode_change", args=[node.pk]),
        reverse("admin:nodes_backendnode_changelist"),
        reverse("admin:scheduling_live") + "?model=llama",
        reverse("admin:scheduling_whatif") + "?act=drain&nodes=gpu-1",
        reverse("admin:index"),
        "/metrics",
    ]
    for url in telling:
        shown = root.get(url, follow=True)
        assert shown.status_code == 200, url
        assert "cannot be read" in shown.content.decode(), url
    for url in others:
        assert root.get(url, follow=True).status_code == 200, url


def test_the_form_says_at_the_field_what_is_wrong(root: Client) -> None:
    make_model()
    make_rule()
    ModelSchedulingConfig.objects.update(tolerations={"not": "a list"})
    model = reverse("admin:scheduling_modelloadinfo_change", args=["llama"])
    shown = root.get(f"{model}?tab=rule").content.decode()
    assert "Tolerations are a list." in shown
    assert "a list&quot;}" in shown
