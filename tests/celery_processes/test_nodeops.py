import os
import signal
from pathlib import Path

from tests.celery_processes.fleet import fleet
from tests.celery_processes.waiting import SUBJECT
from tests.contract.responder import responding, silence
from tests.services import until

TASKS = 200  # on the pool that `nodeops` uses


def test_two_hundred_waiting_tasks_hold_no_connection_and_do_not_delay_a_shutdown(
    tmp_path: Path,
) -> None:
    with (
        fleet(tmp_path) as crew,
        responding(os.environ["CLUSTER_NATS_URL"], SUBJECT, silence) as heard,
    ):
        include = "--include=tests.celery_processes.waiting"
        worker = crew.worker("ticks", "threads", TASKS, include)
        crew.run("-m", "tests.celery_processes.clicks", str(TASKS))
        until(lambda: len(set(heard)) == TASKS, seconds=60)
        assert b"7 click-7" in heard  # the click's id came along

        open_connections = (
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        assert crew.rows(open_connections)[0][0] < 40

        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
