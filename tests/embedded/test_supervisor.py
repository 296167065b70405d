import asyncio
import io
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from clustermgr.embedded.display import Display
from clustermgr.embedded.processes import PidFile
from clustermgr.embedded.supervisor import Part, PartFailed, Supervisor
from tests.services import until


def script(text: str, **changes: Any) -> Part:
    values: dict[str, Any] = {"name": "part", "env": dict(os.environ), "ready": lambda: True}
    return Part(command=[sys.executable, "-u", "-c", text], **{**values, **changes})


def supervise(tmp_path: Path, act: Callable[[Supervisor], Awaitable[None]]) -> str:
    """Run `act` with a supervisor, stop it, and return what the person saw."""
    seen = io.StringIO()

    async def run() -> None:
        supervisor = Supervisor(Display(seen), PidFile(tmp_path / "pids.json"))
        try:
            await act(supervisor)
        finally:
            await supervisor.stop()

    asyncio.run(run())
    return seen.getvalue()


async def eventually(condition: Callable[[], bool]) -> None:
    await asyncio.to_thread(until, condition)


def test_a_part_that_dies_is_started_again(tmp_path: Path) -> None:
    births = tmp_path / "births"

    async def act(supervisor: Supervisor) -> None:
        await supervisor.start(script(f"open({str(births)!r}, 'a').write('x')"))
        await eventually(lambda: births.exists() and len(births.read_text()) >= 2)

    assert "starting it again" in supervise(tmp_path, act)


def test_a_guest_that_does_not_come_up_ends_nobody_and_is_started_again(tmp_path: Path) -> None:
    births = tmp_path / "births"
    dies = f"open({str(births)!r}, 'a').write('x'); raise SystemExit('that port is taken')"

    async def act(supervisor: Supervisor) -> None:
        await supervisor.start(script(dies, guest=True, ready=lambda: False))
        await eventually(lambda: len(births.read_text()) >= 2)

    seen = supervise(tmp_path, act)
    assert "that port is taken" in seen
    assert "starting it again" in seen


def test_a_part_that_never_comes_up_is_reported_with_its_last_words(tmp_path: Path) -> None:
    async def act(supervisor: Supervisor) -> None:
        part = script("print('no space left'); raise SystemExit(3)", ready=lambda: False)
        await supervisor.start(part)

    with pytest.raises(PartFailed, match=r"code 3(.|\n)*no space left"):
        supervise(tmp_path, act)


def test_a_part_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    text = f"""
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open({str(pids)!r}, "w").write(f"{{os.getpid()}} {{child.pid}}")
time.sleep(600)
"""

    async def act(supervisor: Supervisor) -> None:
        await supervisor.start(script(text, grace=0.2))
        await eventually(lambda: pids.exists() and len(pids.read_text().split()) == 2)

    assert "did not stop" in supervise(tmp_path, act)
    for pid in map(int, pids.read_text().split()):
        until(lambda pid=pid: _gone(pid))  # type: ignore[misc]


def test_a_guest_can_say_goodbye_to_those_who_stay(tmp_path: Path) -> None:
    door, seen = tmp_path / "door", tmp_path / "seen"
    host = f"""
import os, signal, sys
open({str(door)!r}, "w").close()
signal.signal(signal.SIGTERM, lambda *_: (os.unlink({str(door)!r}), sys.exit()))
signal.pause()
"""
    guest = f"""
import os, signal, sys
def goodbye(*_):
    os.rename({str(seen)!r}, {str(seen)!r} + ".open" * os.path.exists({str(door)!r}))
    sys.exit()
signal.signal(signal.SIGTERM, goodbye)
open({str(seen)!r}, "w").close()
signal.pause()
"""

    async def act(supervisor: Supervisor) -> None:
        await supervisor.start(script(host, name="web", ready=door.exists))
        await supervisor.start(script(guest, name="guest", guest=True, ready=seen.exists))

    supervise(tmp_path, act)
    assert (tmp_path / "seen.open").exists()


def test_lines_carry_the_name_of_their_part(tmp_path: Path) -> None:
    async def act(supervisor: Supervisor) -> None:
        await supervisor.run_once("prepare", [sys.executable, "-c", "print(1)"], os.environ)
        hello = script("print('hello'); import time; time.sleep(600)", name="web")
        await supervisor.start(hello)
        await eventually(lambda: "hello" in supervisor._display._stream.getvalue())  # type: ignore

    assert "web      | hello" in supervise(tmp_path, act)


def test_what_an_earlier_run_left_behind_is_stopped_and_nothing_else(tmp_path: Path) -> None:
    async def act(supervisor: Supervisor) -> None:
        process = await asyncio.create_subprocess_exec("sleep", "600", start_new_session=True)
        PidFile(tmp_path / "pids.json").add("web", process.pid)
        assert PidFile(tmp_path / "pids.json").stop_leftovers() == ["web"]
        until(lambda: _gone(process.pid))

    supervise(tmp_path, act)
    (tmp_path / "pids.json").write_text(f'{{"web": [{os.getpid()}, 1.0]}}')
    assert PidFile(tmp_path / "pids.json").stop_leftovers() == []  # a recycled pid: it is us


def _gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
