"""Starts one real PostgreSQL for the whole test run and a real NATS for each of its processes,
before Django loads."""

import os
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from clustermgr.embedded import scratch
from clustermgr.embedded.ports import free_port, free_ports
from clustermgr.embedded.scratch import until

__all__ = ["free_port", "free_ports", "until"]

ENVIRONMENT = {
    "DJANGO_SECRET_KEY": "tests-only-" + "x" * 50,
    "DJANGO_ALLOWED_HOSTS": "testserver,localhost,127.0.0.1",
    "CLUSTER_HTTPS": "false",
    "CLUSTER_LOG_FORMAT": "text",
    "CLUSTER_ANSWER_WITHIN": "0.2",  # seconds; nobody carries out what most tests order
    "CLUSTER_REGISTRATION_TOKEN": "test-registration-token",
    "DJANGO_ALLOW_ASYNC_UNSAFE": "true",  # Playwright's sync API runs a loop in the test thread
}
_RUNNING = ExitStack()


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests() -> Iterator[None]:
    # xdist's workers inherit the environment of the process that started the servers.
    if "CLUSTER_TEST_SERVICES" not in os.environ:
        servers = _RUNNING.enter_context(scratch.servers())
        os.environ.update(ENVIRONMENT | servers.environment())
        os.environ["CLUSTER_TEST_SERVICES"] = "running"
    elif "PYTEST_XDIST_WORKER" in os.environ:
        # A database of its own each has from pytest-django. Of subjects there is one set: what
        # one says about prompts, or for a node called "another-id", the others must not hear.
        os.environ["CLUSTER_NATS_URL"] = _RUNNING.enter_context(scratch.bus())
    yield


def pytest_unconfigure() -> None:
    _RUNNING.close()
