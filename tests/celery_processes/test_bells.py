"""Processes that ring, a broker that forgets, and the clock that repairs it."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.celery_processes.fleet import ROOT, Fleet, fleet
from tests.services import until

pytestmark = pytest.mark.timeout(180)


def burst(crew: Fleet, *, processes: int, rings: int) -> None:
    command = [sys.executable, "-m", "tests.celery_processes.rings", str(rings)]
    crowd = [subprocess.Popen(command, cwd=ROOT, env=crew.env) for _ in range(processes)]
    assert [one.wait(60) for one in crowd] == [0] * processes


def ticks(crew: Fleet) -> int:
    rows = crew.rows("SELECT runs FROM clustermgr_tick WHERE name = 'scheduling.reconcile'")
    return int(rows[0][0]) if rows else 0


def waiting(crew: Fleet) -> int:
    return int(crew.rows("SELECT count(*) FROM pgmq.q_ticks")[0][0])


def test_a_thousand_rings_of_four_processes_are_one_tick_and_a_purged_queue_loses_none(
    tmp_path: Path,
) -> None:
    with fleet(tmp_path) as crew:
        burst(crew, processes=4, rings=250)
        assert waiting(crew) == 1

        crew.rows("SELECT pgmq.purge_queue('ticks')")
        burst(crew, processes=1, rings=10)
        assert waiting(crew) == 0

        crew.worker("ticks", "prefork", 2)
        clock = crew.beat()
        until(lambda: ticks(crew) >= 1, seconds=60)
        clock.kill()
        clock.wait(60)
        until(lambda: waiting(crew) == 0, seconds=60)

        before = ticks(crew)
        burst(crew, processes=1, rings=1)
        until(lambda: ticks(crew) > before, seconds=60)
