"""Fixtures every test may ask for."""

from collections.abc import Iterator
from typing import Any

import pytest
from celery import current_app
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from clustermgr import tokens
from clustermgr.lib import fastlane
from clustermgr.lib.bus import default_bus
from tests.factories import NOW


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None) -> Iterator[None]:
    """A database that somebody is still connected to cannot be dropped.

    And a bus that outlives its server says so after the last test.
    """
    yield
    fastlane.close()
    default_bus().close()


@pytest.fixture
def queued(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What was queued, as (task name, *arguments); a name nobody registered fails the test."""
    sent: list[tuple[Any, ...]] = []

    def record(name: str, args: tuple[Any, ...] = (), **_: Any) -> None:
        current_app.loader.import_default_modules()
        assert name in current_app.tasks, f"no task is called {name}"
        sent.append((name, *args))

    monkeypatch.setattr(current_app, "send_task", record)
    return sent


@pytest.fixture
def superuser(db: None) -> User:
    return User.objects.create_superuser("root", password="a long enough secret")


@pytest.fixture
def api(superuser: User) -> APIClient:
    """A script with an all-powerful token."""
    _, secret = tokens.issue(superuser, name="tests", now=NOW)
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {secret}")
    return client
