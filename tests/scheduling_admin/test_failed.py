"""A model without a rule whose loads fail must not look fine."""

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from scheduling.services import asking, standing
from tests.factories import NOW, make_model, make_node, make_replica

pytestmark = pytest.mark.django_db
LIST = reverse("admin:scheduling_modelloadinfo_changelist")
FAILED: dict[str, Any] = {"failures": 2, "last_error": "gpu-1: no such backend"}


def test_a_model_that_nobody_could_load_is_shown_as_failed_with_the_reason(
    admin_client: Client,
) -> None:
    make_node()
    make_model(**FAILED)
    page = admin_client.get(LIST).content.decode()
    assert "cm-is-failed" in page
    assert "gpu-1: no such backend" in page
    told = asking.why("llama", now=NOW)
    assert (told.satisfied, told.reason) == (
        False,
        "It failed 2 times, last with: gpu-1: no such backend.",
    )


def test_one_that_serves_all_the_same_is_not(admin_client: Client) -> None:
    make_replica(make_node(), config_revision="r1")
    make_model(**FAILED)
    assert not standing.one("llama").failing
    assert "cm-is-failed" not in admin_client.get(LIST).content.decode()
    assert asking.why("llama", now=NOW).satisfied
