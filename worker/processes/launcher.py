"""Becomes the backend, after arranging that it dies with the worker.

Run as a script of its own, `launcher.py <worker's pid> <run.sh> <arguments>`: the same between fork
and exec of a process with many threads could hang for ever.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    worker, run = int(sys.argv[1]), sys.argv[2]
    if sys.platform == "linux":  # survives the `exec` here, and that of a run.sh
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != worker:  # it died before we could ask
        sys.exit("the worker is gone")
    try:
        os.execv(run, sys.argv[2:])
    except OSError as error:
        sys.exit(f"cannot start {run}: {error.strerror}")
