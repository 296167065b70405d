from collections.abc import Iterator

import psycopg
import pytest

from tests.celery_processes.fleet import Fleet, fleet
from tests.services import until


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(tmp_path_factory.mktemp("ticks")) as started:
        started.worker("ticks", "prefork", 2)
        started.beat()
        until(lambda: started.pulses() >= 1, seconds=90)
        yield started


def grows(crew: Fleet, by: int = 2) -> None:
    before = crew.pulses()
    until(lambda: crew.pulses() >= before + by)


def test_two_beats_and_two_workers_do_no_harm(crew: Fleet) -> None:
    crew.beat()
    crew.worker("ticks", "prefork", 2)
    grows(crew, by=6)
    assert crew.rows("SELECT sum(failures) FROM clustermgr_tick") == [(0,)]


def test_a_flushed_broker_costs_a_tick_and_no_more(crew: Fleet) -> None:
    crew.rows("SELECT pgmq.purge_queue('ticks')")
    grows(crew)


def test_losing_every_connection_to_postgresql_ends_no_process(crew: Fleet) -> None:
    me = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
    crew.rows(f"{me} AND datname = current_database()")
    grows(crew)
    assert all(process.poll() is None for process in crew.processes)


def test_a_killed_worker_leaves_its_work_to_the_others(crew: Fleet) -> None:
    crew.worker("ticks", "prefork", 2)  # whatever ran before this test
    crew.processes[0].kill()
    grows(crew)


def test_the_broker_does_not_keep_what_is_done(crew: Fleet) -> None:
    def waiting() -> int:
        return int(crew.rows("SELECT count(*) FROM pgmq.q_ticks")[0][0])

    until(lambda: waiting() <= 2)
    with pytest.raises(psycopg.errors.UndefinedTable):
        crew.rows("SELECT 1 FROM pgmq.q_celery")  # nothing went to Celery's default queue
