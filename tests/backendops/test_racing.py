"""Two processes of ours want the same op at the same moment."""

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import connection

from backendops.models import PendingBackendOp
from backendops.states import OpState
from tests.backendops.played import PlayedNode
from tests.factories import make_op

pytestmark = pytest.mark.django_db(transaction=True)

ROUNDS = 100
SOON = 0.01  # seconds: both have read the line by then, and wait for the same instant
# What the ticks and nodeops processes do, each line at the instant that it names
RIVAL = """
import sys, time, django
django.setup()
from django.conf import settings
from django.db import connection
settings.DATABASES["default"]["NAME"] = connection.settings_dict["NAME"] = sys.argv[1]
from backendops.services import dispatching, executing
from backendops.services.desk import Desk
from clustermgr.lib.bus import default_bus
from nodes.gateway import NodeGateway
from tests.factories import NOW
desk, gateway = Desk(clock=lambda: NOW), NodeGateway(default_bus())
print("ready", flush=True)
for line in sys.stdin:
    instant, *claim = line.split()
    while time.monotonic() < float(instant):
        pass
    if claim:
        op_id, fence = map(int, claim)
        won = executing.apply(op_id, fence, gateway=gateway, desk=desk, clock=lambda: NOW)
    else:
        won = dispatching.dispatch(now=NOW)
    print(int(won), flush=True)
"""


class Rival:
    """A process that does what it is told when it is told."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", RIVAL, str(connection.settings_dict["NAME"])],
            # Its doorbells ring for nobody: the test delivers them, and twice
            env={
                **os.environ,
                "DJANGO_SETTINGS_MODULE": "clustermgr.settings",
                "CELERY_BROKER_URL": "memory://",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell(self, *words: object) -> None:
        assert self.process.stdin is not None
        print(*words, file=self.process.stdin, flush=True)

    def answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


@contextmanager
def two_rivals() -> Iterator[tuple[Rival, Rival]]:
    pair = Rival(), Rival()
    try:
        assert [one.answer() for one in pair] == ["ready", "ready"]
        yield pair
    finally:
        for one in pair:
            one.process.kill()
            one.process.communicate()


def race(pair: tuple[Rival, Rival], *words: object) -> list[int]:
    """What each of the two won."""
    instant = time.monotonic() + SOON
    for one in pair:
        one.tell(instant, *words)
    return [int(one.answer()) for one in pair]


def test_two_processes_race_for_one_op_and_exactly_one_sends() -> None:
    names = [f"backend-{number}" for number in range(ROUNDS)]
    winners: Counter[tuple[int, ...]] = Counter()
    with PlayedNode.called("gpu-1") as played, two_rivals() as pair:
        for name in names:
            op = make_op(played.node, name)
            assert sum(race(pair)) == 1, "handed out twice, or to nobody"
            op.refresh_from_db()
            assert (op.state, op.fence) == (OpState.RUNNING, 1)
            winners[tuple(race(pair, op.pk, op.fence))] += 1
    assert sum(winners.values()) == winners[1, 0] + winners[0, 1] == ROUNDS
    assert [(verb, asked["backend"]) for verb, asked in played.did] == [
        ("install", name) for name in names
    ]
    assert PendingBackendOp.objects.filter(state=OpState.SUCCEEDED).count() == ROUNDS
    assert not PendingBackendOp.objects.exclude(generation=1, fence=1, attempts=0).exists()
