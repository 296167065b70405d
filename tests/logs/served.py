"""The real web process on the test's own database: WebSockets need more than a test client."""

import os
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection

from clustermgr.embedded.parts import ROOT, UVICORN
from tests.services import free_port, until


@contextmanager
def web() -> Iterator[str]:
    """uvicorn as `manage.py up` starts it; its host and port."""
    with web_process() as (place, _):
        yield place


@contextmanager
def web_process() -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    """The same, with its process."""
    place = f"127.0.0.1:{free_port()}"
    database = os.environ["DATABASE_URL"].rsplit("/", 1)[0]
    env = {**os.environ, "DATABASE_URL": f"{database}/{connection.settings_dict['NAME']}"}
    command = [*UVICORN, "--host", "127.0.0.1", "--port", place.rpartition(":")[2]]
    process = subprocess.Popen(command, cwd=ROOT, env=env)
    try:
        until(lambda: _answers(place))
        yield place, process
    finally:
        process.terminate()
        process.wait(60)


def _answers(place: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{place}/healthz", timeout=2) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False
