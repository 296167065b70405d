"""A web process that is told to stop does not wait for a model to be loaded."""

import json
import os
import signal
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from scheduling.models import LoadJob
from tests.factories import make_model, make_node
from tests.logs.served import web_process
from tests.routing.conftest import Caller
from tests.services import until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("queued")]


def route(place: str, secret: str) -> tuple[int, Any, Any]:
    request = urllib.request.Request(
        f"http://{place}/api/route",
        data=json.dumps({"model": "llama", "timeout": 3600}).encode(),
        headers={"Authorization": f"Bearer {secret}", "Content-Type": "application/json"},
    )
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=60)
    told = refused.value
    return told.code, told.headers["Retry-After"], json.load(told)["code"]


def test_who_waits_for_a_load_is_sent_to_the_next_process_when_this_one_stops(
    caller: Caller,
) -> None:
    make_model()
    make_node()
    with web_process() as (place, process), ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(route, place, caller.secret)
        until(LoadJob.objects.exists)
        os.kill(process.pid, signal.SIGTERM)
        assert waiting.result(60) == (503, "1", "stopping")
        assert process.wait(60) is not None
    assert LoadJob.objects.active().count() == 1
