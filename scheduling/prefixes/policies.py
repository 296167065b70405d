"""How requests for a model are routed: what the cluster says, and what its rule says instead."""

from dataclasses import dataclass, replace

from scheduling.states import RoutePolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Settled: nothing in it is inherited any more."""

    route: RoutePolicy = RoutePolicy.PREFIX_CACHE
    # A replica that has seen the prompt may be busier than the idlest by so much, and so many times
    balance_abs: int = 2
    balance_rel: float = 1.5
    min_match: float = 0.3  # the share of a prompt that is worth a preference

    @property
    def watches(self) -> bool:
        """Whether prompts are remembered at all."""
        return self.route in (RoutePolicy.PREFIX_CACHE, RoutePolicy.PREFIX_SHADOW)

    @property
    def shadow(self) -> bool:
        """Whether what is remembered is only counted, and decides nothing."""
        return self.route == RoutePolicy.PREFIX_SHADOW

    def settled(
        self,
        *,
        route_policy: str = "",
        balance_abs_threshold: int = 0,
        balance_rel_threshold: float = 0.0,
        min_prefix_match: float = 0.0,
    ) -> "Policy":
        """With a rule's own columns, of which an empty one inherits."""
        return replace(
            self,
            route=RoutePolicy(route_policy) or self.route,
            balance_abs=balance_abs_threshold or self.balance_abs,
            balance_rel=balance_rel_threshold or self.balance_rel,
            min_match=min_prefix_match or self.min_match,
        )


ROUND_ROBIN = Policy(route=RoutePolicy.ROUND_ROBIN)
