"""One node while a plan takes shape."""

from nodes.states import NodeType, ReplicaState
from scheduling.planning.views import JobView, NodeView, ReplicaView
from scheduling.planning.wishes import Wish

UNLOADING = ReplicaState.UNLOADING.value  # plain text: compared with every row there is


class Spot:
    """What is left of a node. Room only shrinks: what leaves is still there until it is gone."""

    __slots__ = (
        "closed",
        "disk",
        "gpu",
        "in_flight",
        "leaving",
        "live",
        "reachable",
        "routable",
        "rows",
        "stamp",
        "taken",
        "view",
        "vram",
    )

    def __init__(self, view: NodeView) -> None:
        self.view = view
        # Without a GPU models live in RAM
        self.gpu = view.total_vram > 0
        self.vram = view.available_vram if self.gpu else view.available_ram
        self.disk = view.available_disk
        self.in_flight = 0
        self.rows = 0  # replicas that stay
        self.leaving = 0
        self.taken: dict[str, set[int]] = {}  # model: its slots, including those of leavers
        self.live: dict[str, int] = {}  # model: its replicas that stay
        self.stamp = 0  # grows with every claim
        self.reachable, self.routable = view.reachable, view.routable
        # Nothing new at all; filters.STATE says why
        self.closed = not (
            self.routable
            and view.node_type == NodeType.BACKEND
            and view.cordoned_at is None
            and view.quarantined_until is None
        )

    @property
    def idle(self) -> bool:
        return self.rows == 0

    def free_index(self, model: str) -> int | None:
        """The lowest slot nobody has; compact numbering matches the worker's ports."""
        taken = self.taken.get(model)
        if not taken:
            return 0
        if len(taken) >= self.view.slots:  # also when some lie above a limit that was lowered
            return None
        return next((index for index in range(self.view.slots) if index not in taken), None)

    def seat(self, replica: ReplicaView) -> None:
        model = replica.model
        taken = self.taken.get(model)
        if taken is None:
            self.taken[model] = {replica.slot}
        else:
            taken.add(replica.slot)
        if replica.state == UNLOADING:
            self.leaving += replica.leaving
            return
        self.rows += 1
        self.live[model] = self.live.get(model, 0) + 1
        self.in_flight += replica.in_flight

    def reserve(self, job: JobView, *, size: int) -> None:
        if job.freed_at is not None:
            self.leaving += 1
        elif job.reservation_ended_at is None:
            self.vram -= job.reserved_vram
        if job.active:
            self.disk -= size
            self.taken.setdefault(job.model, set()).add(job.slot)

    def take(self, wish: Wish, index: int) -> None:
        size = 0 if wish.name in self.taken else wish.model.size_bytes or 0
        self.taken.setdefault(wish.name, set()).add(index)
        self.live[wish.name] = self.live.get(wish.name, 0) + 1
        self.rows += 1
        self.vram -= wish.vram or 0
        self.disk -= size
        self.stamp += 1
