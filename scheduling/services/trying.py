"""What would become of a request this moment. Nothing is leased, loaded or remembered by asking."""

from collections.abc import Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from nodes.models import NodeModel
from nodes.states import ReplicaState
from scheduling.models import LoadJob
from scheduling.prefixes.chains import chain_of
from scheduling.prefixes.index import Seat
from scheduling.prefixes.policies import Policy
from scheduling.prefixes.selecting import Candidate, Choice, Wish, choose, choose_for_session
from scheduling.services import coldstart, placing, routeterms
from scheduling.services.prefixing import Prefixes


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A replica, and what the router thinks of it."""

    replica: NodeModel
    objection: str = ""  # why it gets no requests; empty: it may
    chosen: bool = False
    knows: bool = False  # this process remembers that it has seen the prompt's beginning


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The decision, or what a request would have to wait for."""

    policy: Policy
    options: tuple[Option, ...]  # the chosen one first, then by how busy they are
    why: str = ""
    job: LoadJob | None = None  # under way: a request would join it
    wait: str = ""

    @property
    def chosen(self) -> NodeModel | None:
        return next((one.replica for one in self.options if one.chosen), None)


def explain(model: str, *, prompt: str, session: str, prefixes: Prefixes, now: datetime) -> Answer:
    """Who would get such a request, and why; from rows and from this process's memory."""
    coldstart.check(model, revision="")
    standing = routeterms.look_up(model, prefixes=prefixes)
    chain = chain_of(prompt, model=model) if not session else ()
    wish = prefixes.wish_for(model, chain, standing.policy, now=now)
    rows = list(NodeModel.objects.filter(model_name=model).select_related("node"))
    serving = NodeModel.objects.all().serving().filter(model_name=model)
    able = set(serving.exclude(node__in=standing.barred).values_list("pk", flat=True))
    welcome = _welcome([row for row in rows if row.pk in able], now=now)
    choice = _choose(welcome, standing.policy, session=session, wish=wish)
    options = [
        Option(
            replica=row,
            objection="" if row in welcome else _objection(row, able, standing.barred),
            chosen=choice is not None and row.pk == choice.seat.id,
            knows=wish is not None and row.pk == wish.hot,
        )
        for row in rows
    ]
    options.sort(key=_order)
    if choice is not None:
        return Answer(policy=standing.policy, options=tuple(options), why=choice.why)
    job, wait = placing.foresee(model, now=now)
    return Answer(policy=standing.policy, options=tuple(options), job=job, wait=wait)


def _choose(
    rows: Sequence[NodeModel], policy: Policy, *, session: str, wish: Wish | None
) -> Choice | None:
    candidates = [
        Candidate(
            Seat(row.pk, row.node_id, row.replica_index),
            row.in_flight,
            row.last_used,
            int(row.node.available_vram),
        )
        for row in rows
    ]
    if session:
        guard = Wish(abs=policy.balance_abs, rel=policy.balance_rel)
        return choose_for_session(candidates, session, guard)
    return choose(candidates, wish)


def _welcome(rows: list[NodeModel], *, now: datetime) -> list[NodeModel]:
    """Those that do not rest; where all do, all of them."""
    awake = [row for row in rows if row.ejected_until is None or row.ejected_until <= now]
    return awake or rows


def _objection(row: NodeModel, able: Set[UUID], barred: Sequence[UUID]) -> str:
    """Which condition it does not meet: of `serving()`, of the rule, of its callers."""
    if row.pk in able:
        return "It rests: callers complained of it."
    if row.state != ReplicaState.LOADED:
        return f"It is {row.state}."
    if row.outdated_at is not None:
        return "The model was edited since it was loaded."
    if row.suspect_since is not None:
        return "Its worker has not confirmed it yet."
    if row.withdrawn_at is not None:
        return "It is withdrawn, and stops when it is idle."
    if row.node_id in barred:
        return "The rule's selector does not mean its node."
    return f"Its node is {row.node.status}."


def _order(option: Option) -> tuple[bool, bool, int, str, int]:
    row = option.replica
    return (
        not option.chosen,
        bool(option.objection),
        row.in_flight,
        row.node.name,
        row.replica_index,
    )
