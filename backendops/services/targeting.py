"""Which nodes an order is for, and why the others are left out; decided before it is written."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db.models import Q

from backendops.models import GalleryBackend, NodeBackend, NodeInventory
from backendops.orders import Order, Target
from backendops.querysets import any_of
from backendops.states import Verb
from clustermgr.lib.errors import Conflict, NotFound
from clustermgr.lib.text import uuid_in
from nodes.builds import PLAIN, suits
from nodes.models import BackendNode
from nodes.querysets import BackendNodeQuerySet
from nodes.states import Facts, Liveness, NodeStatus, NodeType, status_of

NEEDS_IT = (Verb.UPGRADE, Verb.REINSTALL, Verb.DELETE)  # pointless where it is not installed


class NoEligibleNode(Conflict):
    """Nobody is left to do it; an order without a node would look like a success."""

    code = "no_eligible_node"


class NeedsNamedNodes(Conflict):
    """A build for one kind of hardware is not for a mixed fleet."""

    code = "concrete_backend_requires_target"

    def __init__(self, words: str, *, meta_alternative: str = "") -> None:
        super().__init__(words)
        self.meta_alternative = meta_alternative


@dataclass(frozen=True, slots=True, kw_only=True)
class Addressee:
    """A node as far as an order must know it: a thousand whole ones take a tenth of a second."""

    pk: UUID
    name: str
    node_type: str
    capability: str
    status: NodeStatus


Node = BackendNode | Addressee


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    node: Node
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Who gets the order; `words` says how they were chosen."""

    nodes: Sequence[Addressee]
    skipped: Sequence[Skipped]
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What we know about one backend in the fleet, read once."""

    has: dict[UUID, NodeBackend]
    observed: frozenset[UUID]
    builds: dict[str, str] | None  # capability -> build, if it stands for several
    built_for: frozenset[str]  # capabilities, if it is one of those builds
    meta: str  # the name that stands for it


def choose(order: Order, target: Target) -> Chosen:
    """Resolve `target` for `order`; refuse when nobody is left."""
    known = _look(order)
    if target.everyone and known.built_for and order.verb == Verb.INSTALL:
        raise NeedsNamedNodes(
            f"{order.backend} is built for {', '.join(sorted(known.built_for))} only;"
            f" name the nodes, or install {known.meta}, which fits each of them.",
            meta_alternative=known.meta,
        )
    nodes, words = _named(target, order)
    chosen: list[Addressee] = []
    skipped: list[Skipped] = []
    for node in nodes:
        why = obstacle(node) or _mismatch(node, order, target, known)
        if why:
            skipped.append(Skipped(node=node, why=why))
        else:
            chosen.append(node)
    if not chosen:
        raise NoEligibleNode(_nobody(order, skipped))
    return Chosen(nodes=chosen, skipped=skipped, words=words)


def obstacle(node: Node) -> str:
    """Why this node takes no orders at all; empty: it does, now or when it is back."""
    if node.node_type != NodeType.BACKEND:
        return f"{node.name} is an agent; it runs no backends."
    match node.status:
        case NodeStatus.PENDING:
            return f"{node.name} is not approved yet."
        case NodeStatus.RETIRED:
            return f"{node.name} is retired."
        case NodeStatus.DRAINING:
            return f"{node.name} is being drained."
    return ""


def named_nodes(names: Sequence[str]) -> tuple[UUID, ...]:
    """The ids of nodes that were named by id or by name, in no particular order."""
    ids = {found for name in names if (found := uuid_in(name))}
    others = {name for name in names if not uuid_in(name)}
    known = dict(BackendNode.objects.filter(name__in=others).values_list("name", "pk"))
    if missing := others - known.keys():
        raise NotFound(f"There is no node {', '.join(sorted(missing)[:5])}.")
    return tuple(sorted(ids | set(known.values())))


def suitability(nodes: Sequence[BackendNode], order: Order) -> dict[UUID, str]:
    """For a page: why each of these nodes would be left out; "" where it would not."""
    known, anywhere = _look(order), Target(everyone=True)
    return {node.pk: obstacle(node) or _mismatch(node, order, anywhere, known) for node in nodes}


def _named(target: Target, order: Order) -> tuple[Sequence[Addressee], str]:
    if target.nodes:
        found = _read(BackendNode.objects.filter(pk__in=any_of(target.nodes)))
        missing = set(target.nodes) - {node.pk for node in found}
        if missing:
            raise NotFound(f"There is no node {', '.join(sorted(map(str, missing)))}.")
        names = [node.name for node in found]
        words = f"node {names[0]}" if len(names) == 1 else f"{len(names)} named nodes"
        return found, words
    fleet = BackendNode.objects.present().backends()
    if target.selector is not None:
        return _read(fleet.matching(target.selector)), f"selector {target.selector}"[:255]
    having = order.verb in NEEDS_IT
    return _read(fleet), "all nodes that have it" if having else "all nodes"


def _read(nodes: BackendNodeQuerySet) -> list[Addressee]:
    facts = {
        "approved": Q(approved_at__isnull=False),
        "retired": Q(retired_at__isnull=False),
        "draining": Q(drain_requested_at__isnull=False),
    }
    rows = nodes.values_list("pk", "name", "node_type", "capability", "liveness").annotate(**facts)
    return [
        Addressee(
            pk=pk,
            name=name,
            node_type=kind,
            capability=capability,
            status=status_of(
                Facts(
                    approved=approved,
                    retired=retired,
                    draining=draining,
                    liveness=Liveness(liveness),
                )
            ),
        )
        for pk, name, kind, capability, liveness, approved, retired, draining in rows
    ]


def _look(order: Order) -> _Known:
    has = {row.node_id: row for row in NodeBackend.objects.filter(name=order.backend)}
    observed = NodeInventory.objects.filter(observed_at__isnull=False)
    builds: dict[str, str] | None = None
    built_for: set[str] = set()
    meta = ""
    for entry in GalleryBackend.objects.exclude(capabilities={}):
        if entry.name == order.backend:
            builds = entry.capabilities
        matching = {cap for cap, build in entry.capabilities.items() if build == order.backend}
        if matching:
            built_for |= matching
            meta = entry.name
    return _Known(
        has=has,
        observed=frozenset(observed.values_list("node_id", flat=True)),
        builds=builds,
        built_for=frozenset(built_for - {PLAIN}),
        meta=meta,
    )


def _mismatch(node: Node, order: Order, target: Target, known: _Known) -> str:
    if order.verb in NEEDS_IT or order.verb == Verb.STOP:
        return _not_there(node, order, known)
    if target.despite_mismatch or order.uri:
        return ""
    return _wrong_hardware(node, order, known)


def _not_there(node: Node, order: Order, known: _Known) -> str:
    # A node that never told what it has may have it: the worker decides
    there = known.has.get(node.pk)
    if there is None:
        told = node.pk in known.observed
        return f"{node.name} does not have {order.backend}." if told else ""
    if there.is_system and order.verb in NEEDS_IT:
        return f"{order.backend} is part of the worker's own image on {node.name}."
    return ""


def _wrong_hardware(node: Node, order: Order, known: _Known) -> str:
    mine = node.capability or PLAIN
    if known.builds is not None and not suits(mine, among=known.builds):
        return f"{order.backend} has no build for {mine} ({node.name})."
    if known.built_for and not suits(mine, among=known.built_for):
        wanted = ", ".join(sorted(known.built_for))
        return f"{order.backend} is built for {wanted}; {node.name} is {mine}."
    return ""


def _nobody(order: Order, skipped: Sequence[Skipped]) -> str:
    if not skipped:
        return f"No node can {order.verb} {order.backend}: none matches."
    reasons = " ".join(dict.fromkeys(skip.why for skip in skipped[:5]))
    more = f" And {len(skipped) - 5} more." if len(skipped) > 5 else ""
    return reasons + more if len(skipped) == 1 else f"No eligible node. {reasons}{more}"
