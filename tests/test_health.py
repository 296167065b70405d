import json
import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test import Client
from pytest_django import Settings

from clustermgr import health
from clustermgr.models import Tick


@pytest.fixture(autouse=True)
def _fresh_examiner(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    monkeypatch.setattr(health, "_examiner", health.Examiner())
    # The examiner opens connections of its own: point it at this test's database.
    base = os.environ["DATABASE_URL"].rsplit("/", 1)[0]
    settings.DATABASE_URL = f"{base}/{connection.settings_dict['NAME']}"


def ask(client: Client) -> tuple[int, dict[str, dict[str, object]]]:
    reply = client.get("/readyz")
    return reply.status_code, json.loads(reply.content)["checks"]


def ticked(age: timedelta) -> None:
    moment = datetime.now(UTC) - age
    Tick.objects.create(name="clustermgr.pulse", started_at=moment, finished_at=moment)


@pytest.mark.django_db(transaction=True)
def test_before_the_first_tick_we_are_not_ready_and_say_why(client: Client) -> None:
    code, checks = ask(client)
    assert code == 503
    assert checks["database"]["ok"]
    assert "No tick has run yet" in str(checks["beat"]["reason"])


@pytest.mark.django_db(transaction=True)
def test_a_clock_that_stopped_is_noticed_with_its_age(client: Client) -> None:
    ticked(timedelta(minutes=5))
    _, checks = ask(client)
    assert not checks["beat"]["ok"]
    assert checks["beat"]["age_seconds"] == pytest.approx(300, abs=5)
    assert "300 s ago" in str(checks["beat"]["reason"])


@pytest.mark.django_db(transaction=True)
def test_a_recent_tick_is_enough(client: Client) -> None:
    ticked(timedelta(seconds=3))
    assert ask(client)[1]["beat"]["ok"]


@pytest.mark.django_db(transaction=True)
def test_an_unreachable_database_is_told_without_its_address(
    client: Client, settings: Settings
) -> None:
    settings.DATABASE_URL = "postgresql://somebody:hush@127.0.0.1:1/hidden"
    code, checks = ask(client)
    assert code == 503
    assert checks["database"]["reason"] == "PostgreSQL does not answer."
    assert "hush" not in json.dumps(checks)
    assert "127.0.0.1" not in json.dumps(checks)


@pytest.mark.django_db(transaction=True)
def test_an_unreachable_broker_is_told_apart_from_the_database(
    client: Client, settings: Settings
) -> None:
    settings.CELERY_BROKER_URL = "amqp://127.0.0.1:1//"
    _, checks = ask(client)
    assert not checks["broker"]["ok"]
    assert checks["database"]["ok"]


@pytest.mark.django_db(transaction=True)
def test_the_limit_follows_the_configured_interval(client: Client, settings: Settings) -> None:
    settings.CLUSTER = replace(settings.CLUSTER, pulse_every=timedelta(minutes=10))
    ticked(timedelta(minutes=5))
    assert ask(client)[1]["beat"]["ok"]
