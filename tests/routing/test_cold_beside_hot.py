"""Requests that wait for a plan stand in nobody's way."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from django.db import connection

from clustermgr.lib.errors import DomainError
from clustermgr.lib.locks import LockKey, wait_lock
from nodes.models import BackendNode
from scheduling.models import LoadJob, ModelLoadInfo
from scheduling.services import prefixing
from scheduling.services.coldstart import REMEMBERED
from scheduling.services.placing import NoCapacity
from scheduling.services.routing import Router
from tests.factories import NOW, make_model, make_node, make_replica
from tests.locks import held, waiting
from tests.routing.conftest import Caller
from tests.routing.test_cold_start import loaded
from tests.routing.test_leases import ask

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("queued")]

COLD = [f"cold-{number}" for number in range(40)]


def a_long_tick() -> AbstractContextManager[None]:
    """Somebody plans, for as long as the block."""
    return held(partial(wait_lock, LockKey.RECONCILE))


async def until_true(fact: Callable[[], object]) -> None:
    """Looks from the loop: not in the threads that this is about."""
    async with asyncio.timeout(60):
        while not fact():
            await asyncio.sleep(0.02)
    connection.close()


def test_a_hot_model_is_served_while_cold_ones_wait_for_a_tick(caller: Caller) -> None:
    make_replica(make_node("hot"))
    for name in COLD:
        make_model(name)

    async def story(it: Caller) -> list[Any]:
        await it.route()
        with a_long_tick():
            cold = [asyncio.create_task(it.route(name, timeout=0)) for name in COLD]
            await until_true(waiting)
            async with asyncio.timeout(20):
                hot = [await it.route() for _ in range(30)]
        await asyncio.gather(*cold)
        return hot

    assert {status for status, _ in caller.run(story)} == {200}


def test_who_waits_for_a_load_sees_it_ready_while_other_models_wait_for_a_tick(
    caller: Caller,
) -> None:
    for name in ["llama", *COLD]:
        make_model(name)
    make_node()

    async def story(it: Caller) -> Any:
        patient = asyncio.create_task(it.route(timeout=600))
        await until_true(LoadJob.objects.exists)
        with a_long_tick():
            cold = [asyncio.create_task(it.route(name, timeout=0)) for name in COLD]
            await until_true(waiting)
            loaded()
            connection.close()
            async with asyncio.timeout(20):
                served = await patient
        await asyncio.gather(*cold)
        return served

    assert caller.run(story)[0] == 200


class Clock:
    now = NOW

    def __call__(self) -> datetime:
        return self.now


def refusal_of(router: Router) -> DomainError | None:
    try:
        router.want(ask())
    except DomainError as refusal:
        return refusal
    return None


def test_who_asks_again_at_once_is_refused_without_another_plan(
    django_assert_max_num_queries: Any,
) -> None:
    make_model()
    make_node(cordoned_at=NOW)
    clock = Clock()
    router = Router(clock=clock, prefixes=prefixing.default())
    first = refusal_of(router)
    assert isinstance(first, NoCapacity)
    clock.now += REMEMBERED / 2
    with django_assert_max_num_queries(1):  # that its definition is still the same
        assert str(refusal_of(router)) == str(first)


def test_room_that_was_made_is_found_as_soon_as_the_refusal_is_forgotten() -> None:
    make_model()
    make_node(cordoned_at=NOW)
    clock = Clock()
    router = Router(clock=clock, prefixes=prefixing.default())
    assert refusal_of(router)
    BackendNode.objects.update(cordoned_at=None)
    clock.now += REMEMBERED
    assert timedelta(seconds=1) > REMEMBERED
    assert refusal_of(router) is None
    assert LoadJob.objects.count() == 1


@pytest.mark.parametrize("change", ["edit", "set back"])
def test_a_refusal_outlives_neither_an_edit_nor_a_clock_that_is_set_back(change: str) -> None:
    make_model()
    make_node(cordoned_at=NOW)
    clock = Clock()
    router = Router(clock=clock, prefixes=prefixing.default())
    assert refusal_of(router)
    BackendNode.objects.update(cordoned_at=None)
    if change == "edit":
        ModelLoadInfo.objects.update(config_revision="r2")
    else:
        clock.now -= timedelta(hours=1)
    assert refusal_of(router) is None
