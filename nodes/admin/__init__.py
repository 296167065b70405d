"""The operator's pages about machines; each module is one page or one part of one."""

from nodes.admin import addworker, events, nodes, replicas, tokens

__all__ = ["addworker", "events", "nodes", "replicas", "tokens"]
