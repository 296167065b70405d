"""One thread that goes its rounds as long as there is something to look after."""

import logging
import threading
from collections.abc import Callable
from datetime import timedelta

from django.db import connection

log = logging.getLogger(__name__)


class Rounds:
    """Calls `do` every so often until `needed` says no; `start` it with every new reason."""

    def __init__(
        self,
        *,
        name: str,
        every: timedelta,
        needed: Callable[[], bool],
        do: Callable[[], None],
    ) -> None:
        self._name = name
        self._every = every.total_seconds()
        self._needed = needed
        self._do = do
        self._lock = threading.Lock()
        self._pause = threading.Event()  # never set: a sleep
        self._going = False

    def start(self) -> None:
        """Call it after the reason is there: a thread that is about to end would miss it."""
        with self._lock:
            if not self._going:
                self._going = True
                threading.Thread(target=self._run, name=self._name, daemon=True).start()

    def _run(self) -> None:
        while not self._pause.wait(self._every) and self._go_on():
            try:
                self._do()
            except Exception:  # edge: the database is away; the next round tries again
                log.warning("a round failed", extra={"rounds": self._name}, exc_info=True)
            finally:
                connection.close()

    def _go_on(self) -> bool:
        with self._lock:
            self._going = self._needed()
            return self._going
