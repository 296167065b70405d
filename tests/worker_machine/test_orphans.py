import json
import os
import subprocess
import sys
from pathlib import Path

import psutil

from tests.services import free_port, until
from tests.worker_machine.loops import in_loop
from tests.worker_machine.running import alive, processes, reference
from worker.processes.child import MARK
from worker.processes.orphans import PidFiles

SLEEPER = [sys.executable, "-c", "import time; time.sleep(1000)"]


def start(mark: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(SLEEPER, env={**os.environ, MARK: mark}, start_new_session=True)


def test_what_an_earlier_life_left_running_is_killed(tmp_path: Path) -> None:
    orphan = start("mark-1")
    PidFiles(tmp_path).add("m#0", orphan.pid, "mark-1")
    assert PidFiles(tmp_path).sweep() == ["m#0"]
    assert not alive(orphan.pid)
    assert list(tmp_path.iterdir()) == []


def test_a_stranger_with_a_recycled_pid_is_left_alone(tmp_path: Path) -> None:
    stranger = start("another mark")
    try:
        PidFiles(tmp_path).add("m#0", stranger.pid, "mark-1")
        [record] = tmp_path.iterdir()
        changed = json.loads(record.read_text())
        changed["created"] -= 100
        record.write_text(json.dumps(changed))
        assert PidFiles(tmp_path).sweep() == []
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_child_that_outlived_its_shell_is_found_by_its_mark(tmp_path: Path) -> None:
    shell = subprocess.Popen(
        ["/bin/sh", "-c", "sleep 1000 & echo $!; wait"],
        env={**os.environ, MARK: "mark-2"},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert shell.stdout is not None
    child = int(shell.stdout.readline())
    PidFiles(tmp_path).add("m#0", shell.pid, "mark-2")
    shell.kill()
    shell.wait()
    assert alive(child)
    assert PidFiles(tmp_path).sweep() == ["m#0"]
    until(lambda: not alive(child))


def test_half_written_and_foreign_files_are_cleared_away(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"key": "m')
    (tmp_path / "b.json").write_text('{"unknown": 1}')
    (tmp_path / "c.new").write_text("")
    assert PidFiles(tmp_path).sweep() == []
    assert list(tmp_path.iterdir()) == []


@in_loop
async def test_a_new_worker_ends_what_the_old_one_left(tmp_path: Path) -> None:
    orphan = start("mark-3")
    PidFiles(tmp_path / "state").add("m#0", orphan.pid, "mark-3")
    async with processes(tmp_path) as own:
        assert not alive(orphan.pid)
        assert own.running() == []


WORKER = """
import asyncio, sys
from pathlib import Path
from worker.machine import Installed
from worker.processes import Ports, RealProcesses, RingLogs

async def main():
    home, run, port = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    own = RealProcesses(ports=Ports(port, port + 9), logs=RingLogs(), state=home / "state")
    print((await own.start("m#0", Installed(name="engine", run=run))).pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def test_backends_end_with_a_worker_that_was_killed(tmp_path: Path) -> None:
    run = reference(tmp_path).run
    with subprocess.Popen(
        [sys.executable, "-c", WORKER, str(tmp_path), run, str(free_port())], stdout=subprocess.PIPE
    ) as worker:
        assert worker.stdout is not None
        pid = int(worker.stdout.readline())
        assert alive(pid)
        worker.kill()
    until(lambda: not alive(pid))


def test_a_backend_that_watches_its_parent_ends_without_the_kernels_help(tmp_path: Path) -> None:
    run = reference(tmp_path).run
    script = f"{run} --addr 127.0.0.1:0 & echo $!; wait"
    with subprocess.Popen(
        ["/bin/sh", "-c", script], stdout=subprocess.PIPE, start_new_session=True
    ) as shell:
        assert shell.stdout is not None
        pid = int(shell.stdout.readline())
        assert b"listens" in shell.stdout.readline()
        shell.kill()
        shell.wait()
        until(lambda: not psutil.pid_exists(pid) or not alive(pid))


def test_the_name_of_a_key_never_becomes_a_path(tmp_path: Path) -> None:
    files = PidFiles(tmp_path / "state")
    files.add("../../evil#0", os.getpid(), "mark-4")
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["mark-4.json"]
