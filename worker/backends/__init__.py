"""Backends on the disk: where they come from, how they are unpacked and swapped in."""

from worker.backends.disk import DiskBackends
from worker.backends.limits import Limits

__all__ = ["DiskBackends", "Limits"]
