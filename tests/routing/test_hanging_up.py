"""Who leaves before the answer holds nothing."""

import asyncio
from contextlib import AbstractContextManager
from time import monotonic
from typing import Any

import pytest

from nodes.models import NodeModel
from scheduling.api import routedoor
from scheduling.models import RouteLease
from tests.factories import make_node, make_replica
from tests.locks import held, waiting
from tests.routing.conftest import Caller
from tests.routing.test_cold_beside_hot import until_true

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("queued")]


def somebody_has_the_replica() -> AbstractContextManager[None]:
    return held(lambda: NodeModel.objects.select_for_update().get())


def nobody_holds_anything() -> bool:
    return not RouteLease.objects.exists() and NodeModel.objects.get().in_flight == 0


def test_who_hangs_up_during_a_slow_pick_holds_nothing(caller: Caller) -> None:
    make_replica(make_node())

    async def story(it: Caller) -> Any:
        hangs_up = asyncio.Event()
        with somebody_has_the_replica():
            leaver = asyncio.create_task(it.route(hangs_up=hangs_up))
            stayer = asyncio.create_task(it.route())
            await until_true(waiting)
            began = monotonic()
            await until_true(lambda: monotonic() > began + routedoor.SLOW)
            hangs_up.set()
        return await leaver, (await stayer)[0]

    assert caller.run(story) == ((0, None), 200)
    assert RouteLease.objects.count() == NodeModel.objects.get().in_flight == 1


def test_a_request_that_is_cancelled_during_its_pick_holds_nothing(caller: Caller) -> None:
    before = make_replica(make_node()).last_used

    async def story(it: Caller) -> None:
        with somebody_has_the_replica():
            leaver = asyncio.create_task(it.route())
            await until_true(waiting)
            leaver.cancel()  # as uvicorn does when it has waited long enough for requests to end
        async with asyncio.timeout(20):
            # The lease came after all, and went
            await until_true(lambda: NodeModel.objects.get().last_used != before)
            await until_true(nobody_holds_anything)

    caller.run(story)
