"""A model and its rule, read strictly: what cannot be understood places nothing."""

from dataclasses import dataclass

from clustermgr.lib.errors import InvalidInput
from nodes.builds import Offer
from nodes.selectors import Selector
from nodes.taints import Toleration
from scheduling.planning.views import ModelView, RuleView
from scheduling.states import Strategy

GIB = 2**30
SPARE_SHARE = 20  # one twentieth of the payload ...
SPARE_LEAST = GIB  # ... and never less
UNKNOWN_PAYLOAD = 2 * GIB
FIELDS = frozenset({"key", "value", "effect"})
NO_RULE = RuleView()

PoolKey = tuple[Selector, tuple[Toleration, ...], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What one replica of a model asks of a node."""

    model: ModelView
    rule: RuleView
    selector: Selector
    tolerations: tuple[Toleration, ...]
    disk: int
    offer: Offer | None = None  # None: its backend comes to every node

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def vram(self) -> int | None:
        return self.model.vram_bytes

    @property
    def packs(self) -> bool:
        return self.rule.strategy == Strategy.BINPACK

    @property
    def pool(self) -> PoolKey:
        """Models that agree in this may go to the same nodes."""
        return self.selector, self.tolerations, self.model.backend if self.offer else ""


def read(model: ModelView, *, offer: Offer | None = None) -> Wish:
    """The wish behind a model's rows; refuses a selector or toleration it cannot read."""
    rule = model.rule or NO_RULE
    return Wish(
        model=model,
        rule=rule,
        selector=Selector.parse(rule.selector),
        tolerations=read_tolerations(rule.tolerations),
        disk=headroom(model.size_bytes),
        offer=offer,
    )


def headroom(size: int | None) -> int:
    """Free disk that a payload needs: itself, and some to breathe."""
    if not size:
        return UNKNOWN_PAYLOAD
    return size + max(size // SPARE_SHARE, SPARE_LEAST)


def read_tolerations(stored: object) -> tuple[Toleration, ...]:
    """A list of `{"key", "value", "effect"}`; what is left out stands for anything."""
    if not isinstance(stored, list | tuple):
        raise InvalidInput("Tolerations are a list.")
    return tuple(map(_toleration, stored))


def _toleration(item: object) -> Toleration:
    if isinstance(item, Toleration):
        return item
    if not isinstance(item, dict) or item.keys() - FIELDS:
        raise InvalidInput("A toleration is an object with key, value and effect.")
    if not all(value is None or isinstance(value, str) for value in item.values()):
        raise InvalidInput("A toleration's key, value and effect are text.")
    return Toleration(**item)
