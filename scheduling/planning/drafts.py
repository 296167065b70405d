"""A plan in the making."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from scheduling.planning.board import Board
from scheduling.planning.plans import Cancel, Held, Place, Plan, Rolled, Starved, Unload
from scheduling.planning.standing import Standing
from scheduling.planning.views import Knobs, ReplicaView
from scheduling.states import Cause


@dataclass(slots=True, kw_only=True)
class Draft:
    """What is decided so far, and what it was decided from."""

    board: Board
    standings: Mapping[str, Standing]
    now: datetime
    knobs: Knobs
    place: list[Place] = field(default_factory=list)
    unload: list[Unload] = field(default_factory=list)
    cancel: list[Cancel] = field(default_factory=list)
    retiring: list[Unload] = field(default_factory=list)
    starved: list[Starved] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    recovered: list[str] = field(default_factory=list)
    rolled: list[Rolled] = field(default_factory=list)

    def stop(
        self,
        standing: Standing,
        row: ReplicaView,
        cause: Cause,
        reason: str,
        *,
        gap: bool = False,
    ) -> None:
        """Let a replica go; from now on nobody counts on it."""
        self.unload.append(replace(self._leave(standing, row, cause, reason), gap=gap))
        standing.leaving += 1
        self.board.leave(row)

    def retire(
        self, standing: Standing, row: ReplicaView, reason: str, *, gap: bool = False
    ) -> None:
        """Let a replica of an old revision go, once nobody waits for an answer of it."""
        leaver = replace(self._leave(standing, row, Cause.REPLACE, reason), gap=gap)
        if row.in_flight:
            self.retiring.append(leaver)
            standing.outdated.append(row)  # it runs until then, and the maximum minds it
        else:
            self.unload.append(leaver)
            standing.leaving += 1
            self.board.leave(row)

    def _leave(self, standing: Standing, row: ReplicaView, cause: Cause, reason: str) -> Unload:
        for group in standing.groups:
            if row in group:
                group.remove(row)
        return Unload(
            replica=row.id,
            model=row.model,
            node=row.node,
            node_name=self.board.name(row.node),
            index=row.slot,
            cause=cause,
            reason=reason,
        )

    def hold(self, standing: Standing, reason: str, *, missing: int) -> None:
        """Say what is being waited for."""
        standing.short = standing.waiting = True
        self.held.append(Held(model=standing.model.name, reason=reason, missing=missing))

    def finished(self) -> Plan:
        return Plan(
            place=tuple(self.place),
            unload=tuple(self.unload),
            cancel=tuple(self.cancel),
            retire=tuple(self.retiring),
            starved=tuple(self.starved),
            held=tuple(self.held),
            recovered=tuple(self.recovered),
            rolled=tuple(self.rolled),
        )
