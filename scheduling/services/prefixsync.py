"""Processes tell each other what replicas have seen; a lost message costs a cache hit."""

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from uuid import UUID

from clustermgr.lib.bus import NatsBus
from clustermgr.lib.errors import BusError, InvalidInput
from clustermgr.lib.offloop import off_loop
from clustermgr.lib.rounds import Rounds
from nodes.models import NodeModel
from nodes.wire import PrefixInvalidated, PrefixObserved
from nodes.wire.prefixcache import INVALIDATE, OBSERVE, WHOLE_NODE
from scheduling.prefixes.chains import Chain
from scheduling.prefixes.index import PrefixIndex, Seat

log = logging.getLogger(__name__)

SEND_EVERY = timedelta(seconds=0.05)
LOOK_EVERY = 0.1  # seconds
MOST_WAITING = 10_000  # messages, each way; of more the oldest are lost
SEATS_FOR = timedelta(seconds=10)  # a slot is looked up again after that

Clock = Callable[[], datetime]
Slot = tuple[str, UUID, int]  # model, node, index: how a replica is known on the wire


class Outbox:
    """What others should hear: sent together by a thread that lives while there is something."""

    def __init__(self, bus: NatsBus) -> None:
        self.origin = secrets.token_hex(8)
        self._bus = bus
        self._waiting: deque[tuple[str, bytes]] = deque(maxlen=MOST_WAITING)
        self._rounds = Rounds(name="prefixes", every=SEND_EVERY, needed=self._any, do=self._send)

    def observed(self, model: str, chain: Chain, seat: Seat) -> None:
        said = PrefixObserved(
            model=model, chain=chain, node_id=str(seat.node), replica=seat.slot, origin=self.origin
        )
        self._put(OBSERVE, said.encode())

    def invalidated(self, model: str, node: UUID, index: int | None) -> None:
        replica = WHOLE_NODE if index is None else index
        said = PrefixInvalidated(
            model=model, node_id=str(node), replica=replica, origin=self.origin
        )
        self._put(INVALIDATE, said.encode())

    def _put(self, subject: str, payload: bytes) -> None:
        self._waiting.append((subject, payload))
        self._rounds.start()

    def _send(self) -> None:
        taken = [self._waiting.popleft() for _ in range(len(self._waiting))]
        try:
            self._bus.publish_each(taken)
        except BusError as error:  # they age: what is told minutes late is wrong rather than old
            log.debug("prefixes not shared", extra={"lost": len(taken), "reason": str(error)})

    def _any(self) -> bool:
        return bool(self._waiting)


class Listener:
    """Applies what other processes say; it never says it again."""

    def __init__(self, index: PrefixIndex, *, origin: str, clock: Clock) -> None:
        self._index = index
        self._origin = origin
        self._clock = clock
        self._heard: deque[tuple[str, bytes]] = deque(maxlen=MOST_WAITING)
        self._seats: dict[Slot, Seat] = {}
        self._looked_up_at = datetime.min.replace(tzinfo=UTC)

    async def keep(self, bus: NatsBus) -> None:
        """Listen for ever; neither a missing bus nor a missing database ends it."""
        with ExitStack() as ears:
            for subject in (OBSERVE, INVALIDATE):
                ears.enter_context(bus.listening(subject, partial(self.hear, subject)))
            while True:
                await asyncio.sleep(LOOK_EVERY)
                await self._look()

    async def _look(self) -> None:
        now = self._clock()
        try:
            if self._heard:
                await off_loop(self.apply, now=now)
            # A thread for each turn: a pick that waits at the index's lock comes in between
            while await off_loop(self._index.sweep, now=now.timestamp()):
                pass
        except Exception:  # edge: the database is away; others say it again, or it expires
            log.warning("could not learn prefixes", exc_info=True)

    def hear(self, subject: str, payload: bytes) -> None:
        """Take one message in without looking at it; `apply` reads it."""
        self._heard.append((subject, payload))

    def apply(self, *, now: datetime) -> int:
        """Do what was said, in the order it was said; how many messages meant something.

        One statement for all replicas that were not known.
        """
        told = [
            message
            for subject, payload in self._take()
            if (message := _read(subject, payload)) and message.origin != self._origin
        ]
        self._look_up(told, now=now)
        return sum(self._learn(message, now=now) for message in told)

    def _take(self) -> list[tuple[str, bytes]]:
        return [self._heard.popleft() for _ in range(len(self._heard))]

    def _learn(self, message: PrefixObserved | PrefixInvalidated, *, now: datetime) -> bool:
        slot = _slot(message)
        if slot is None:
            return False
        model, node, index = slot
        if isinstance(message, PrefixInvalidated):
            whole = index == WHOLE_NODE
            gone = [it for it in self._seats if it == slot or (whole and it[:2] == slot[:2])]
            for it in gone:
                del self._seats[it]
            self._index.forget(model, node, None if whole else index)
            return True
        seat = self._seats.get(slot)
        if seat is None:
            return False
        self._index.adopt(model, message.chain, seat, now=now.timestamp())
        return True

    def _look_up(
        self, told: Sequence[PrefixObserved | PrefixInvalidated], *, now: datetime
    ) -> None:
        if now - self._looked_up_at > SEATS_FOR:
            self._seats, self._looked_up_at = {}, now
        seen = {_slot(message) for message in told if isinstance(message, PrefixObserved)}
        unknown = {slot for slot in seen if slot is not None and slot not in self._seats}
        if unknown:
            self._seats |= _seats(unknown)


def _read(subject: str, payload: bytes) -> PrefixObserved | PrefixInvalidated | None:
    kind = PrefixObserved if subject == OBSERVE else PrefixInvalidated
    try:
        return kind.decode(payload)
    except InvalidInput as error:
        log.info("unreadable word about prefixes", extra={"subject": subject, "reason": str(error)})
        return None


def _slot(message: PrefixObserved | PrefixInvalidated) -> Slot | None:
    try:
        return message.model, UUID(message.node_id), message.replica
    except ValueError:  # a node of somebody else's cluster
        return None


def _seats(slots: Iterable[Slot]) -> dict[Slot, Seat]:
    models, nodes, _ = zip(*slots, strict=True)
    rows = NodeModel.objects.filter(model_name__in=set(models), node_id__in=set(nodes))
    return {
        (model, node, index): Seat(id_, node, index)
        for id_, model, node, index in rows.order_by().values_list(
            "id", "model_name", "node_id", "replica_index"
        )
    }
