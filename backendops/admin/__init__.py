"""The operator's pages about orders; each module is one page or one part of one."""

from backendops.admin import backends, nodetabs, operations, ops

__all__ = ["backends", "nodetabs", "operations", "ops"]
