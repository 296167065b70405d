"""Fixtures every test may ask for."""

from collections.abc import Iterator
from typing import Any

import pytest
from celery import current_app
from django.conf import settings as django_settings
from django.contrib.auth.models import User
from django.db import connection
from django.test import TransactionTestCase
from hypothesis import HealthCheck, settings
from pytest_django import DjangoDbBlocker
from rest_framework.test import APIClient

from clustermgr import tokens
from clustermgr.lib import fastlane
from clustermgr.lib.bus import default_bus
from scheduling.services.routing import default_router
from tests.emptying import Emptying
from tests.factories import NOW

# Files that take half a minute or more. Begun last, one process would work on them alone while the
# others have nothing left to do. Whole systems and files that only compute take turns: three
# systems at once would starve each other on two cores.
LONG = (
    "tests/api/test_fuzzing.py",
    "tests/embedded/test_chaos.py",
    "tests/reconciling/test_converging.py",
    "tests/embedded/test_living.py",
    "tests/nodes/test_registry_laws.py",
    "tests/celery_processes/test_bells.py",
    "tests/planning/test_laws.py",
    "tests/embedded/test_up.py",
    "tests/backendops/test_racing.py",
    "tests/embedded/test_quick_tour.py",
    "tests/browser/test_operations_for_real.py",
    "tests/backendops_api/test_query_counts.py",
    "tests/embedded/test_two_webs.py",
    "tests/nodes/test_sweep_cost.py",
    "tests/embedded/test_fleet.py",
    "tests/contract_worker/test_installing.py",
    "tests/celery_processes/",
    "tests/browser/",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def rank(item: pytest.Item) -> int:
        return next((n for n, path in enumerate(LONG) if item.nodeid.startswith(path)), len(LONG))

    items.sort(key=rank)


# A machine that is busy with something else is not a failing test.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

# Nor does it refuse a connection: threads of a test may stand in line for longer than requests.
connection.settings_dict["OPTIONS"]["pool"]["timeout"] = 60

# A password is to be slow to guess, not slow to test: a third of a second for every user made.
django_settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """A database that somebody is still connected to cannot be dropped.

    And a bus that outlives its server says so after the last test.
    """
    with django_db_blocker.unblock():
        emptying = Emptying()
    TransactionTestCase._fixture_teardown = lambda case: emptying(case)  # type: ignore[attr-defined]
    yield
    fastlane.close()
    default_bus().close()


@pytest.fixture(autouse=True)
def _forgetful() -> None:
    """What the router remembers of a model for a second holds for one test, not for the next."""
    default_router.cache_clear()


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
