import csv
import io
import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from backendops.services import records
from backendops.states import OpState
from tests.factories import make_node, make_op, make_operation

LIST = reverse("admin:backendops_operation_changelist")


def export(browser: Client, kind: str, **asked: str) -> Any:
    return browser.get(reverse("admin:backendops_operation_export", args=[kind]), asked)


def nodes(reply: Any) -> list[str]:
    text = reply.getvalue().decode()
    return [row["node"] for row in csv.DictReader(io.StringIO(text))]


@pytest.fixture
def two(db: None) -> None:
    good = [make_op(make_node(name), "vllm", state=OpState.SUCCEEDED) for name in ("a", "b")]
    make_operation(*good, backend="vllm", requested_by="ada")
    bad = make_op(make_node("c"), "piper", state=OpState.DEAD, last_error="=1+1")
    make_operation(bad, backend="piper", requested_by="bob")


def test_row_58_what_is_listed_is_exported_under_the_same_filters(root: Client, two: None) -> None:
    assert sorted(nodes(export(root, "csv"))) == ["a", "b", "c"]
    assert nodes(export(root, "csv", backend="vllm")) == ["a", "b"]
    assert nodes(export(root, "csv", state="failed")) == ["c"]
    assert nodes(export(root, "csv", q="bob")) == ["c"]
    assert nodes(export(root, "csv", actor="nobody")) == []
    assert json.loads(export(root, "json", actor="nobody").getvalue()) == []
    [row] = json.loads(export(root, "json", node="c").getvalue())
    assert (row["error"], row["state"]) == ("=1+1", "dead")
    page = root.get(LIST, {"backend": "vllm"}).content.decode()
    assert f"{reverse('admin:backendops_operation_export', args=['csv'])}?backend=vllm" in page


def test_an_export_is_sent_in_pieces_that_hold_everything_once(
    root: Client, two: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "AT_ONCE", 1)
    assert sorted(nodes(export(root, "csv"))) == ["a", "b", "c"]
    assert len(json.loads(export(root, "json").getvalue())) == 3
    assert len(list(export(root, "csv").streaming_content)) == 4  # the head, and one for each


def test_a_filter_that_means_nothing_leads_back_to_the_list(root: Client) -> None:
    reply = export(root, "csv", no_such_column__exact="1")
    assert (reply.status_code, reply.headers["Location"]) == (302, LIST)
    assert export(root, "pdf").status_code == 404


def test_who_may_not_see_operations_may_not_export_them(client: Client, two: None) -> None:
    client.force_login(User.objects.create_user("stranger", is_staff=True))
    assert export(client, "csv").status_code == 403
