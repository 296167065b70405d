from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from clustermgr import roles


@pytest.fixture(autouse=True)
def no_broker(queued: list[tuple[Any, ...]]) -> None:
    """Pages ring doorbells after commit; nobody listens here."""


def _browser(role: str) -> Client:
    roles.ensure_groups()
    user = User.objects.create_user(role, is_staff=True)
    user.groups.add(Group.objects.get(name=role))
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def viewer(db: None) -> Client:
    return _browser("viewer")


@pytest.fixture
def operator(db: None) -> Client:
    return _browser("operator")


@pytest.fixture
def root(superuser: User) -> Client:
    client = Client()
    client.force_login(superuser)
    return client
