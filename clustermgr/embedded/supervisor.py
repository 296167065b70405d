"""Starts parts, keeps them running, stops all of them."""

import asyncio
import contextlib
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from clustermgr.embedded.accounts import Account
from clustermgr.embedded.display import Display
from clustermgr.embedded.processes import PidFile, die_with_parent

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
# A part that lived this long was fine: its next death starts the back-off anew.
STEADY_AFTER = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One process to keep running."""

    name: str
    command: Sequence[str]
    env: Mapping[str, str]
    ready: Callable[[], bool]
    cwd: Path | None = None
    account: Account | None = None
    stop_signal: int = signal.SIGTERM
    # What the kernel sends when the supervisor vanishes. SIGKILL also ends a part that hangs.
    death_signal: int = signal.SIGKILL
    grace: float = 8.0
    patience: float = 60.0
    guest: bool = False  # says goodbye to the others: stopped while they are still there
    hush: tuple[str, ...] = ()  # lines with one of these say nothing a person needs


class PartFailed(Exception):
    """A part did not come up; the message carries its last words."""


@dataclass(slots=True)
class _Running:
    part: Part
    process: asyncio.subprocess.Process
    pump: asyncio.Task[None]
    born: float
    last_words: deque[str] = field(default_factory=lambda: deque(maxlen=15))


class Supervisor:
    """Parts in the order they were started; stopped in the opposite one."""

    def __init__(self, display: Display, pids: PidFile) -> None:
        self._display = display
        self._pids = pids
        self._running: dict[str, _Running] = {}
        self._keepers: list[asyncio.Task[None]] = []
        self.stopping = asyncio.Event()

    async def start(self, part: Part) -> None:
        """Start `part` and wait until it is ready; from then on a death is followed by a birth.

        Nobody depends on a guest: one that does not come up is told of, and started again.
        """
        began = time.monotonic()
        running = await self._spawn(part)
        try:
            await self._until_ready(running)
        except PartFailed as failure:
            if not part.guest:
                raise
            self._display.log(part.name, str(failure).partition("\n")[0])  # the rest was said
        else:
            self._display.ready(part.name, time.monotonic() - began)
        self._keepers.append(asyncio.create_task(self._keep(part)))

    async def run_once(
        self, name: str, command: Sequence[str], env: Mapping[str, str]
    ) -> list[str]:
        """Run a preparation step to its end, and return what it said."""
        began = time.monotonic()
        part = Part(name=name, command=command, env=env, ready=lambda: True, hush=("",))
        running = await self._spawn(part)
        code = await running.process.wait()
        await running.pump
        del self._running[name]
        if code:
            raise PartFailed(f"{name} failed.\n" + "\n".join(running.last_words))
        self._display.ready(name, time.monotonic() - began)
        return list(running.last_words)

    async def stop(self) -> None:
        """End everything: guests, then what uses the services, then the services, newest first."""
        self.stopping.set()
        for keeper in self._keepers:
            keeper.cancel()
        services = [name for name in self._running if name in ("postgres", "nats")]
        guests = [name for name, one in self._running.items() if one.part.guest]
        users = [name for name in self._running if name not in (*services, *guests)]
        for names in (guests, users):
            await asyncio.gather(*(self._end(self._running[name]) for name in names))
        for name in reversed(services):
            await self._end(self._running[name])

    async def _spawn(self, part: Part) -> _Running:
        process = await asyncio.create_subprocess_exec(
            *part.command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=dict(part.env),
            cwd=part.cwd,
            start_new_session=True,  # Ctrl-C is for us; parts are stopped in order
            preexec_fn=die_with_parent(part.death_signal),
            limit=1024 * 1024,
            **(part.account.popen() if part.account else {}),  # type: ignore[arg-type]
        )
        self._pids.add(part.name, process.pid)
        running = _Running(part, process, asyncio.create_task(asyncio.sleep(0)), time.monotonic())
        running.pump = asyncio.create_task(self._pump(running))
        self._running[part.name] = running
        return running

    async def _pump(self, running: _Running) -> None:
        stream = running.process.stdout
        assert stream is not None
        while line := await _next_line(stream):
            running.last_words.append(line)
            if not any(word in line for word in running.part.hush):
                self._display.log(running.part.name, line)

    async def _until_ready(self, running: _Running) -> None:
        part = running.part
        deadline = time.monotonic() + part.patience
        while not await asyncio.to_thread(part.ready):
            if running.process.returncode is not None:
                await running.pump
                words = "\n".join(running.last_words)
                code = running.process.returncode
                raise PartFailed(f"{part.name} ended with code {code}.\n{words}")
            if time.monotonic() > deadline:
                raise PartFailed(f"{part.name} was not ready within {part.patience:.0f} s.")
            await asyncio.sleep(0.05)

    async def _keep(self, part: Part) -> None:
        pause = FIRST_PAUSE
        while True:
            running = self._running[part.name]
            code = await running.process.wait()
            if time.monotonic() - running.born > STEADY_AFTER:
                pause = FIRST_PAUSE
            self._display.died(part.name, code, pause)
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)
            while not await self._reborn(part):
                await asyncio.sleep(LONGEST_PAUSE)

    async def _reborn(self, part: Part) -> bool:
        try:
            await self._spawn(part)
        except OSError as problem:  # no memory, no process slots: that may pass
            self._display.log(part.name, f"cannot be started: {problem}")
            return False
        return True

    async def _end(self, running: _Running) -> None:
        """Ask, wait, then insist on the whole process group: also a hung part must go."""
        part, process = running.part, running.process
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(part.stop_signal)
            try:
                await asyncio.wait_for(process.wait(), part.grace)
            except TimeoutError:
                self._display.hung(part.name, part.grace)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def _next_line(stream: asyncio.StreamReader) -> str:
    """The next line without its end, or "" at the end of the stream; a monster line is cut."""
    try:
        raw = await stream.readline()
    except ValueError:  # longer than the limit
        raw = await stream.read(1024) + b" ...\n"
    return raw.decode(errors="replace").rstrip("\n") or (" " if raw else "")
