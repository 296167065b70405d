"""What managers tell each other about prompts that replicas have seen; LocalAI's own messages."""

from dataclasses import dataclass
from typing import Self

from clustermgr.lib.errors import InvalidInput
from clustermgr.lib.gojson import MAX_COUNT, GoObject
from nodes.wire import codec
from nodes.wire.commands import NAME
from nodes.wire.processes import MAX_REPLICA

OBSERVE = "prefixcache.observe"
INVALIDATE = "prefixcache.invalidate"
DEEPEST = 64  # links; a longer chain says the same with its first ones
WHOLE_NODE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixObserved:
    """A replica sees this prompt."""

    model: str
    chain: tuple[int, ...]  # shallow to deep
    node_id: str
    replica: int
    origin: str = ""  # ours: who says it, so that it need not listen to itself

    def encode(self) -> bytes:
        return codec.dump(self)

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        given = codec.load(payload)
        return cls(
            model=given.text("model", NAME),
            chain=_chain(given),
            node_id=given.text("node_id", NAME),
            replica=_replica(given, least=0),
            origin=given.text("origin", NAME),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixInvalidated:
    """A replica is gone, or all of a node."""

    model: str
    node_id: str
    replica: int
    origin: str = ""

    def encode(self) -> bytes:
        return codec.dump(self)

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        given = codec.load(payload)
        return cls(
            model=given.text("model", NAME),
            node_id=given.text("node_id", NAME),
            replica=max(_replica(given, least=-MAX_REPLICA), WHOLE_NODE),
            origin=given.text("origin", NAME),
        )


def _chain(given: GoObject) -> tuple[int, ...]:
    links = given.items("chain")[:DEEPEST]
    numbers = [link for link in links if type(link) is int and 0 <= link <= MAX_COUNT]
    if len(set(numbers)) < len(links):
        raise InvalidInput("chain must be a list of 64-bit numbers, none of them twice.")
    return tuple(numbers)


def _replica(given: GoObject, *, least: int) -> int:
    index = given.integer("replica")
    if not least <= index <= MAX_REPLICA:
        raise InvalidInput(f"replica must be between {least} and {MAX_REPLICA}.")
    return index
