"""Who holds what while a plan takes shape: each decision sees the claims of those before it."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from uuid import UUID

from nodes.states import ReplicaState
from scheduling.planning import filters
from scheduling.planning.orders import Order
from scheduling.planning.spots import Spot
from scheduling.planning.views import ClusterView, JobView, ReplicaView
from scheduling.planning.wishes import PoolKey, Wish

LOADED = ReplicaState.LOADED.value
Seat = tuple[ReplicaView, Spot | None]  # None: its node is not there any more


class Board:
    """The cluster of one plan. It changes; the view it was made from does not."""

    def __init__(self, view: ClusterView) -> None:
        nodes = sorted(view.nodes, key=lambda node: node.name)
        self.spots = {node.id: Spot(node) for node in nodes}
        self.offers = view.offers
        self.models = {model.name: model for model in view.models}
        self.seats: defaultdict[str, list[Seat]] = defaultdict(list)  # model: what it has
        self.loads: defaultdict[str, list[JobView]] = defaultdict(list)  # model: what is under way
        self.hosts: defaultdict[str, set[Spot]] = defaultdict(set)  # model: where it has a slot
        self._groups: defaultdict[str, set[Spot]] = defaultdict(set)
        self._pools: dict[PoolKey, tuple[Spot, ...]] = {}
        self._orders: dict[tuple[PoolKey, bool], Order] = {}
        self._open: tuple[Spot, ...] | None = None
        self._seat(view.replicas)
        for job in view.jobs:
            self._reserve(job)

    def pool(self, wish: Wish) -> tuple[Spot, ...]:
        """The nodes that a wish allows; whether there is room is another question."""
        found = self._pools.get(wish.pool)
        if found is None:
            found = tuple(spot for spot in self._opened() if filters.allows(spot, wish))
            self._pools[wish.pool] = found
        return found

    def meant(self, wish: Wish) -> tuple[Spot, ...]:
        """The nodes that its rule means, whether or not its backend can come there."""
        return tuple(spot for spot in self._opened() if filters.meant(spot, wish))

    def order(self, wish: Wish) -> Order:
        """The pool, best first, for models that differ in nothing but their size."""
        key = wish.pool, wish.packs
        if key not in self._orders:
            self._orders[key] = Order(self.pool(wish), wish)
        return self._orders[key]

    def neighbours(self, wish: Wish) -> set[Spot]:
        """Where another model of its concurrency group is, or comes."""
        group = wish.model.group
        return self._groups[group] - self._alone(wish) if group else set()

    def stands(self, wish: Wish, spot: Spot) -> bool:
        """Whether a replica of the model is loaded there that is not to be replaced."""
        return any(
            at is spot and row.state == LOADED and row.outdated_at is None
            for row, at in self.seats.get(wish.name, ())
        )

    def claim(self, spot: Spot, wish: Wish) -> int:
        """Take the lowest free slot, and what the replica will use."""
        index = spot.free_index(wish.name)
        if index is None:
            raise ValueError(f"{spot.view.name} has no slot for {wish.name}")
        spot.take(wish, index)
        self._note(wish.name, {spot})
        for (_, packs), order in self._orders.items():
            if packs:  # only there a claim makes a node more attractive
                order.refresh(spot)
        return index

    def leave(self, replica: ReplicaView) -> None:
        """A replica begins to go; its slot and memory stay taken until it is gone."""
        spot = self.spots.get(replica.node)
        if spot is not None:
            spot.leaving += 1

    def free(self, job: JobView) -> None:
        """A load is given up; what it holds comes back as from a replica that goes."""
        spot = self.spots.get(job.node)
        if spot is not None:
            spot.leaving += 1

    def name(self, node: UUID) -> str:
        spot = self.spots.get(node)
        return spot.view.name if spot else "a node that is gone"

    def _opened(self) -> tuple[Spot, ...]:
        if self._open is None:
            self._open = tuple(spot for spot in self.spots.values() if not spot.closed)
        return self._open

    def _alone(self, wish: Wish) -> set[Spot]:
        """Where nobody of the group is but the model itself."""
        group = wish.model.group
        return {
            spot
            for spot in self.hosts[wish.name]
            if all(name == wish.name for name in self._grouped(spot, group))
        }

    def _grouped(self, spot: Spot, group: str) -> Iterator[str]:
        return (n for n in spot.taken if n in self.models and self.models[n].group == group)

    def _seat(self, replicas: Iterable[ReplicaView]) -> None:
        """One look at each of the many: what else is asked about a replica has its node at hand."""
        spots, seats = self.spots, self.seats
        for replica in replicas:
            spot = spots.get(replica.node)
            seats[replica.model].append((replica, spot))
            if spot is not None:
                spot.seat(replica)
        for name, rows in seats.items():
            self._note(name, {spot for _, spot in rows if spot is not None})

    def _reserve(self, job: JobView) -> None:
        if job.active:
            self.loads[job.model].append(job)
        spot = self.spots.get(job.node)
        if spot is None:
            return
        model = self.models.get(job.model)
        spot.reserve(job, size=(model.size_bytes or 0) if model else 0)
        if job.active:
            self._note(job.model, {spot})

    def _note(self, name: str, spots: set[Spot]) -> None:
        self.hosts[name] |= spots
        model = self.models.get(name)
        if model is not None and model.group:
            self._groups[model.group] |= spots
