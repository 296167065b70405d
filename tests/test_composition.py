import os
import subprocess
import sys
from pathlib import Path

import pytest
from celery import current_app
from django.conf import settings
from django.core.management import call_command
from django.test import Client
from rest_framework.test import APIClient

ROOT = Path(__file__).resolve().parent.parent


def test_everything_that_ticks_exists_and_expires_before_it_ticks_again() -> None:
    current_app.loader.import_default_modules()
    for name, entry in settings.CELERY_BEAT_SCHEDULE.items():
        assert entry["task"] in current_app.tasks, name
        assert entry["options"]["expires"] == entry["schedule"].total_seconds()


def test_every_task_is_named_after_its_app() -> None:
    current_app.loader.import_default_modules()
    foreign = ("celery.", "tests.")
    ours = [name for name in current_app.tasks if not name.startswith(foreign)]
    apps = {"clustermgr", "nodes", "scheduling", "backendops"}
    assert {name.split(".")[0] for name in ours} <= apps


def test_django_has_nothing_to_complain_about() -> None:
    call_command("check", fail_level="WARNING")


@pytest.mark.parametrize("missing", ["DJANGO_SECRET_KEY", "DJANGO_ALLOWED_HOSTS", "DATABASE_URL"])
def test_production_does_not_start_without(missing: str) -> None:
    env = {name: value for name, value in os.environ.items() if name != missing}
    result = subprocess.run(
        [sys.executable, "manage.py", "check"], cwd=ROOT, env=env, capture_output=True, text=True
    )
    assert result.returncode != 0
    assert f"{missing} is not set" in result.stderr


def test_pages_say_where_they_may_load_from(client: Client, db: None) -> None:
    page = client.get("/admin/login/")
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert page.headers["X-Frame-Options"] == "DENY"


def test_cookies_are_for_https_unless_told_otherwise() -> None:
    env = {name: value for name, value in os.environ.items() if name != "CLUSTER_HTTPS"}
    script = (
        "from django.conf import settings as s;"
        "print(s.SESSION_COOKIE_SECURE, s.CSRF_COOKIE_SECURE, s.SECURE_HSTS_SECONDS > 0, s.DEBUG)"
    )
    env["DJANGO_SETTINGS_MODULE"] = "clustermgr.settings"
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=env, capture_output=True, text=True
    )
    assert result.stdout.split() == ["True", "True", "True", "False"]


def test_the_callers_request_id_comes_back_and_a_hostile_one_does_not(client: Client) -> None:
    kept = client.get("/healthz", headers={"X-Request-ID": "abc-123"})
    assert kept.headers["X-Request-ID"] == "abc-123"
    forged = client.get("/healthz", headers={"X-Request-ID": "a b=c"})
    assert forged.headers["X-Request-ID"] != "a b=c"


def test_the_api_describes_itself(api: APIClient) -> None:
    schema = api.get("/api/schema")
    assert schema.status_code == 200
    assert api.get("/api/docs").status_code == 200


@pytest.mark.parametrize("typed", ["/", "/admin"])
def test_what_people_type_leads_to_the_console(client: Client, typed: str) -> None:
    assert client.get(typed).headers["Location"] == "/admin/"
