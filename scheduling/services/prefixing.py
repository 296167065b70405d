"""Prefer who has seen the beginning of a prompt: what this process remembers, and what it counts.

Around a pick: `policy_for` the model's rule, `wish_for` the prompt, then the pick itself, then
`record` what came of it.
"""

import os
from datetime import datetime
from uuid import UUID

from django.conf import settings

from clustermgr.conf import ClusterSettings
from clustermgr.lib.bus import NatsBus, default_bus
from clustermgr.lib.offloop import off_loop
from scheduling.prefixes.chains import Chain
from scheduling.prefixes.index import Limits, PrefixIndex, Seat
from scheduling.prefixes.policies import ROUND_ROBIN, Policy
from scheduling.prefixes.selecting import Load, Wish, wish_of
from scheduling.services import tallying
from scheduling.services.prefixsync import Clock, Listener, Outbox
from scheduling.services.tallying import Tallies
from scheduling.states import RoutePolicy


class Prefixes:
    """One per process; safe for threads; neither waits for the bus nor for the database."""

    def __init__(self, cluster: ClusterSettings, bus: NatsBus) -> None:
        self.index = PrefixIndex(
            Limits(
                ttl=cluster.prefix_cache_ttl.total_seconds(),
                half_life=cluster.prefix_half_life.total_seconds(),
                entries=cluster.prefix_entries,
            )
        )
        self.tallies = Tallies()
        self._on = cluster.prefix_cache
        self._bus = bus
        self._outbox = Outbox(bus)
        self._policy = Policy(
            route=RoutePolicy(cluster.route_policy),
            balance_abs=cluster.balance_abs_threshold,
            balance_rel=cluster.balance_rel_threshold,
            min_match=cluster.min_prefix_match,
        )

    def policy_for(
        self,
        *,
        route_policy: str = "",
        balance_abs_threshold: int = 0,
        balance_rel_threshold: float = 0.0,
        min_prefix_match: float = 0.0,
    ) -> Policy:
        """From the columns of a rule; without any, the cluster's."""
        if not self._on:
            return ROUND_ROBIN
        return self._policy.settled(
            route_policy=route_policy,
            balance_abs_threshold=balance_abs_threshold,
            balance_rel_threshold=balance_rel_threshold,
            min_prefix_match=min_prefix_match,
        )

    def wish_for(self, model: str, chain: Chain, policy: Policy, *, now: datetime) -> Wish | None:
        """What the pick should prefer; None: the plain order."""
        if not chain or not policy.watches:
            return None
        match, cold = self.index.look(model, chain, now=now.timestamp())
        return wish_of(match, cold, chain, policy)

    def record(
        self,
        model: str,
        chain: Chain,
        seat: Seat,
        *,
        policy: Policy,
        wish: Wish | None,
        load: Load,
        now: datetime,
    ) -> None:
        """Remember, count and share who got a prompt."""
        if not chain or not policy.watches:
            return
        to_hot = wish is not None and wish.hot == seat.id
        if policy.shadow:
            counts = tallying.foreseen(wish, load, to_hot=to_hot)
        else:
            counts = tallying.counted(wish, load, to_hot=to_hot, now=now)
        self.tallies.add(model, counts, shadow=policy.shadow, now=now)
        if self.index.record(model, chain, seat, now=now.timestamp()):
            self._outbox.observed(model, chain, seat)

    def forget(self, model: str, node: UUID, index: int | None = None) -> None:
        """A replica is gone, or all of a node. Others hear it even if we knew nothing of it."""
        if self._on:
            self.index.forget(model, node, index)
            self._outbox.invalidated(model, node, index)

    async def keep(self, *, clock: Clock) -> None:
        """Learn from other processes for ever; beside the server, and cancelled with it."""
        if not self._on:
            return
        try:
            await Listener(self.index, origin=self._outbox.origin, clock=clock).keep(self._bus)
        finally:
            await off_loop(self.tallies.flush)


_PREFIXES: dict[int, Prefixes] = {}


def default() -> Prefixes:
    """Those of this process; a fork gets its own."""
    pid = os.getpid()
    known = _PREFIXES.get(pid)
    return known or _PREFIXES.setdefault(pid, Prefixes(settings.CLUSTER, default_bus()))
