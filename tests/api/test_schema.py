import re
from typing import Any

import pytest
import yaml
from django.core.management import call_command
from django.test import Client

from tests.api.clients import Caller, operator, read


@pytest.fixture
def operations(root: Caller) -> dict[str, dict[str, Any]]:
    reply = root.get("/api/schema")
    assert reply.status_code == 200
    paths = yaml.safe_load(reply.content)["paths"]
    return {
        f"{method.upper()} {path}": operation
        for path, methods in paths.items()
        for method, operation in methods.items()
    }


def test_the_shape_of_the_api_is_for_those_who_may_call_it(db: None, client: Client) -> None:
    assert client.get("/api/schema").status_code == 401
    assert Caller("cm_made-up").get("/api/schema").status_code == 401
    assert operator().get("/api/schema").status_code == 200


def test_the_page_asks_people_to_log_in_and_shows_scripts_the_door(
    db: None, client: Client, admin_client: Client
) -> None:
    page = client.get("/api/docs")
    assert page.status_code == 302
    assert page.headers["Location"] == "/admin/login/?next=/api/docs"
    assert Caller("cm_made-up").get("/api/docs").status_code == 401
    assert admin_client.get("/api/docs").status_code == 200


@pytest.mark.parametrize("path", ["/api/nowhere", "/api/node/x/y/z", "/api/", "/api/nodes/a/b"])
def test_a_path_that_does_not_exist_is_said_in_json(db: None, path: str) -> None:
    for method in ("GET", "POST", "DELETE"):
        reply = Caller("").send(method, path, Accept="text/html")
        assert (reply.status_code, read(reply)["code"]) == (404, "not_found")


def test_the_description_needs_no_apology() -> None:
    call_command("spectacular", validate=True, fail_on_warn=True, file="/dev/null")


def test_paths_are_written_as_people_write_them(operations: dict[str, Any]) -> None:
    for name in operations:
        assert re.fullmatch(r"[A-Z]+ (/[a-z{][a-z_-]*}?)+", name), name


def test_every_operation_has_a_name_of_its_own_and_a_summary(operations: dict[str, Any]) -> None:
    names = [operation["operationId"] for operation in operations.values()]
    assert len(names) == len(set(names))
    assert all(operation.get("summary") for operation in operations.values())


def test_workers_and_scripts_are_told_which_token_they_need(operations: dict[str, Any]) -> None:
    for name, operation in operations.items():
        keys = {key for way in operation["security"] for key in way}
        if " /api/node/" in name:
            assert keys == {"registrationToken"}, name
        else:
            assert keys == {"apiToken", "cookieAuth"}, name
