"""What a Celery process does besides tasks: die with its parent, leave quickly."""

import gc
import signal
import threading
from typing import Any

from celery.signals import worker_process_init, worker_shutting_down

from clustermgr.embedded.processes import follow_parent
from clustermgr.lib.bus import default_bus
from nodes import backendrpc


@worker_process_init.connect
def die_with_parent(**_: Any) -> None:
    """A prefork child whose parent was killed would otherwise wait for work for ever."""
    follow_parent(signal.SIGKILL)


@worker_process_init.connect
def collect_no_code(**_: Any) -> None:
    """What is there at the start is there for good; looking it through took a quarter of a tick."""
    gc.freeze()


@worker_shutting_down.connect
def stop_waiting(**_: Any) -> None:
    """Threads cannot be killed: let every wait for a node end now; its op stays claimed in a
    row and the next tick takes it up. In a thread of its own: this runs in a signal handler.
    """
    backendrpc.stop_waiting()
    threading.Thread(target=default_bus().stop_waiting, daemon=True).start()
