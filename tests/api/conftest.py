import pytest
from django.contrib.auth.models import User

from clustermgr import tokens
from nodes.models import JoinToken
from nodes.services import environment
from tests.api.clients import SECRET, Caller, Worker
from tests.factories import NOW


@pytest.fixture
def environment_token(db: None) -> JoinToken:
    """The token of CLUSTER_REGISTRATION_TOKEN, as every process makes it at its start."""
    token = environment.sync(SECRET, auto_approve=False, now=NOW)
    assert token is not None
    return token


@pytest.fixture
def worker(environment_token: JoinToken) -> Worker:
    return Worker(SECRET)


@pytest.fixture
def root(db: None) -> Caller:
    """A script that may do everything."""
    user = User.objects.create_user("root", is_superuser=True)  # no password: hashing is slow
    _, secret = tokens.issue(user, name="tests", now=NOW)
    return Caller(secret)
