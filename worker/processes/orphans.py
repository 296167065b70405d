"""Remembers in files what runs, so that the next start can end what an earlier one left behind."""

import contextlib
import json
import logging
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from worker.processes.child import MARK

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Pid and birthday name one process for ever; the mark is inherited by its children."""

    key: str
    pid: int
    created: float
    mark: str


class PidFiles:
    """One file per living process, in a directory of this worker alone."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def add(self, key: str, pid: int, mark: str) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            born = psutil.Process(pid).create_time()
            record = Record(key=key, pid=pid, created=born, mark=mark)
            path = self._path(mark)
            path.with_suffix(".new").write_text(json.dumps(asdict(record)))
            path.with_suffix(".new").replace(path)

    def forget(self, mark: str) -> None:
        """The process has ended: so must whoever inherited its mark and left its group."""
        _kill(_marked(mark))
        self._path(mark).unlink(missing_ok=True)

    def sweep(self) -> list[str]:
        """Kill exactly what is still ours; the keys of what was found alive."""
        records = [record for path in self._directory.glob("*.json") if (record := _read(path))]
        found = {record.key for record in records if _kill(_survivors(record))}
        for path in self._directory.iterdir():
            path.unlink(missing_ok=True)
        if found:
            log.warning("orphans killed", extra={"keys": sorted(found)})
        return sorted(found)

    def _path(self, mark: str) -> Path:
        return self._directory / f"{mark}.json"  # not the key: that is a foreign word


def _read(path: Path) -> Record | None:
    try:
        return Record(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):  # half-written by a dying worker
        return None


def _survivors(record: Record) -> list[psutil.Process]:
    """The recorded process, and whoever inherited its mark: a shell may be gone, its child not."""
    survivors = _marked(record.mark)
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(record.pid)
        if process.create_time() == record.created and process not in survivors:
            survivors.append(process)
    return survivors


def _marked(mark: str) -> list[psutil.Process]:
    marked = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == mark:
                marked.append(process)
    return marked


def _kill(processes: list[psutil.Process]) -> bool:
    alive = []
    for process in processes:
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE:
                process.kill()
                alive.append(process)
    psutil.wait_procs(alive, timeout=5)
    return bool(alive)
