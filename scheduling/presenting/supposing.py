"""A question about another cluster, as a form asks it, and the answer in words."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from clustermgr.lib.errors import InvalidInput
from nodes.selectors import Selector
from scheduling.definitions import check_name, size
from scheduling.planning.changes import Changes
from scheduling.planning.plans import Plan, Verdict
from scheduling.planning.views import ModelView, RuleView
from scheduling.presenting.words import CAUSES
from scheduling.services.asking import Compared, Leaving

ACTS = {
    "drain": "is drained",
    "cordon": "is cordoned",
    "uncordon": "is uncordoned",
    "remove": "is gone",
}
MOST_REPLICAS = 1000
MOST_NODES = 100
MOST_LINES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Something that would happen."""

    model: str
    node: str = ""
    text: str
    cause: str = ""
    fix: str = ""
    verdicts: tuple[Verdict, ...] = ()
    anyway: bool = False  # it happens without the change, too


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What would happen."""

    headline: str
    calm: bool  # no rule goes short because of it
    leaving: list[tuple[Leaving, str]]
    load: list[Line]
    unload: list[Line]
    given_up: list[Line]  # loads under way
    starved: list[Line]
    waiting: list[Line]
    anyway: list[Line]  # what happens without the change, too


def asks(form: Mapping[str, str]) -> bool:
    return any(form.get(name, "").strip() for name in ("nodes", "model", "new"))


def read(form: Mapping[str, str]) -> Changes:
    """The question behind the form; what is left empty stays as it is."""
    act, nodes = form.get("act", "drain"), _names(form.get("nodes", ""))
    if act not in ACTS:
        raise InvalidInput("A node is drained, cordoned, uncordoned or gone.")
    model, new = form.get("model", "").strip(), form.get("new", "").strip()
    return Changes(
        rules={model: _rule(form, "")} if model else {},
        models=(_model(check_name(new), form),) if new else (),
        **{act: nodes},
    )


def answer(found: Compared, *, changes: Changes) -> Answer:
    plan, anyway = found.plan, found.anyway
    answered = {
        "load": _loads(plan, {(one.model, one.node, one.cause) for one in anyway.place}),
        "unload": _unloads(plan, {one.replica for one in (*anyway.unload, *anyway.retire)}),
        "given_up": _given_up(plan, {one.job for one in anyway.cancel}),
        "starved": _starved(plan, {(one.model, one.missing) for one in anyway.starved}),
        "waiting": _waiting(plan, {(one.model, one.reason) for one in anyway.held}),
    }
    every = [line for lines in answered.values() for line in lines]
    news = {name: [one for one in lines if not one.anyway] for name, lines in answered.items()}
    return Answer(
        headline=_headline(**news, leaving=len(found.leaving)),
        calm=not news["starved"],
        leaving=[(one, _fate(one, plan, changes)) for one in found.leaving[:MOST_LINES]],
        anyway=[one for one in every if one.anyway][:MOST_LINES],
        **{name: lines[:MOST_LINES] for name, lines in news.items()},
    )


def _names(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(filter(None, (part.strip() for part in text.split(",")))))
    if len(names) > MOST_NODES:
        raise InvalidInput(f"At most {MOST_NODES} nodes can be supposed at once.")
    return names


def _rule(form: Mapping[str, str], prefix: str) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, title in (("min", "min_replicas"), ("max", "max_replicas")):
        text = form.get(f"{prefix}{name}", "").strip()
        if text:
            fields[title] = _count(text, title)
    spread, selector = form.get(f"{prefix}spread", ""), form.get(f"{prefix}selector", "").strip()
    if spread:
        fields["spread_all"] = spread == "yes"
    if selector:
        fields["selector"] = str(Selector.parse(selector))
    return fields


def _model(name: str, form: Mapping[str, str]) -> ModelView:
    return ModelView(
        name=name,
        revision="supposed",
        backend=form.get("new_backend", "").strip(),
        vram_bytes=size(form.get("new_vram", "").strip(), field="VRAM"),
        size_bytes=size(form.get("new_size", "").strip(), field="Size on disk"),
        rule=RuleView(**{"min_replicas": 1, **_rule(form, "new_")}),
    )


def _count(text: str, name: str) -> int:
    if not text.isdecimal() or len(text) > 4 or int(text) > MOST_REPLICAS:
        raise InvalidInput(f"{name} must be a whole number up to {MOST_REPLICAS}.")
    return int(text)


def _loads(plan: Plan, known: Collection[Any]) -> list[Line]:
    return _by_model(
        Line(
            model=one.model,
            node=one.node_name,
            text=one.summary,
            cause=CAUSES.get(one.cause, one.cause),
            verdicts=one.verdicts,
            anyway=(one.model, one.node, one.cause) in known,
        )
        for one in plan.place
    )


def _unloads(plan: Plan, known: Collection[Any]) -> list[Line]:
    return _by_model(
        Line(
            model=one.model,
            node=one.node_name,
            text=one.reason,
            cause=CAUSES.get(one.cause, one.cause),
            anyway=one.replica in known,
        )
        for one in (*plan.unload, *plan.retire)
    )


def _given_up(plan: Plan, known: Collection[int]) -> list[Line]:
    return _by_model(
        Line(model=one.model, text=one.reason, anyway=one.job in known) for one in plan.cancel
    )


def _starved(plan: Plan, known: Collection[Any]) -> list[Line]:
    return _by_model(
        Line(
            model=one.model,
            text=one.reason,
            cause=f"{one.missing} missing",
            fix=one.smallest_fix,
            verdicts=one.verdicts,
            anyway=(one.model, one.missing) in known,
        )
        for one in plan.starved
    )


def _waiting(plan: Plan, known: Collection[Any]) -> list[Line]:
    return _by_model(
        Line(model=one.model, text=one.reason, anyway=(one.model, one.reason) in known)
        for one in plan.held
    )


def _by_model(lines: Iterable[Line]) -> list[Line]:
    return sorted(lines, key=lambda one: (one.model, one.node))


def _headline(
    *,
    load: list[Line],
    unload: list[Line],
    given_up: list[Line],
    starved: list[Line],
    waiting: list[Line],
    leaving: int,
) -> str:
    counts = (
        (leaving, "replica leaves", "replicas leave"),
        (len(load), "is loaded", "are loaded"),
        (len(unload), "is unloaded", "are unloaded"),
        (len(given_up), "load is given up", "loads are given up"),
        (len(waiting), "model waits", "models wait"),
        (len(starved), "rule cannot be kept", "rules cannot be kept"),
    )
    told = [f"{count} {one if count == 1 else many}" for count, one, many in counts if count]
    return f"{', '.join(told)}." if told else "Nothing would be different."


def _fate(one: Leaving, plan: Plan, changes: Changes) -> str:
    """What becomes of a replica on a machine that is emptied, or gone."""
    gone = one.node in changes.remove
    others = dict.fromkeys(place.node_name for place in plan.place if place.model == one.model)
    if others:
        return f"{'Replaced' if gone else 'Goes when it is replaced'}: on {', '.join(others)}."
    if any(short.model == one.model for short in plan.starved):
        return "Lost: nothing can replace it." if gone else "Serves on: nothing can replace it."
    if any(held.model == one.model for held in plan.held):
        return "Its replacement has to wait."
    why = "enough run elsewhere" if one.managed else "no rule asks for it"
    return f"{'Lost' if gone else 'Stopped once it is idle'}: {why}."
