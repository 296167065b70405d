"""A download on the disk, possibly half of one, and what is known about it."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Of which file the bytes are: without it they are worthless."""

    url: str
    etag: str = ""  # strong ones only
    total: int = 0  # 0: the server did not tell


class Partial:
    """`<key>.part` with its `<key>.json` beside; the note is written before the first byte."""

    def __init__(self, directory: Path, key: str) -> None:
        self.path = directory / f"{key}.part"
        self._note = directory / f"{key}.json"

    def size(self) -> int:
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def note(self) -> Note | None:
        try:
            return Note(**json.loads(self._note.read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def begin(self, note: Note, *, keep: int) -> IO[bytes]:
        """Open for appending behind the first `keep` bytes, which belong to the same file."""
        if not keep:
            self.remove()
        self._note.write_text(json.dumps(asdict(note)))
        file = self.path.open("ab")
        file.truncate(keep)
        return file

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)
