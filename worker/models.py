"""The files of models, as far as a manager may remove them."""

import asyncio
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from worker.machine import Refused


class Models(Protocol):
    """Where model files live."""

    async def delete(self, name: str) -> None:
        """Remove a model's files; Refused for a name that leads elsewhere."""


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A directory with a directory, or a file and its companions, for each model."""

    home: Path

    async def delete(self, name: str) -> None:
        await asyncio.to_thread(self._delete, name)

    def _delete(self, name: str) -> None:
        target = self._inside(name)
        try:
            if target.is_dir() and not target.is_symlink():
                shutil.rmtree(target)
                return
            for path in _with_companions(target):
                path.unlink(missing_ok=True)
        except OSError as error:
            raise Refused(f"could not delete {name}: {error.strerror}") from error

    def _inside(self, name: str) -> Path:
        """The path of a model; neither the directory itself nor anything outside of it."""
        if not name.strip() or "\x00" in name:
            raise Refused("model name is empty")
        home = self.home.resolve()
        lexical = home / name
        try:
            parent = lexical.parent.resolve()  # a link half-way may lead out
        except (OSError, RuntimeError) as error:
            raise Refused(f"model name {name!r} is no path") from error
        if lexical.name in ("", "..") or not (parent == home or home in parent.parents):
            raise Refused(f"model name {name!r} leads out of the models directory")
        return parent / lexical.name


def _with_companions(target: Path) -> list[Path]:
    if not target.parent.is_dir():
        return []
    prefix = f"{target.name}."
    beside = target.parent.iterdir()
    return [
        path
        for path in beside
        if path.name == target.name
        or (path.name.startswith(prefix) and (path.is_symlink() or not path.is_dir()))
    ]
