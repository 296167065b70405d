"""Requests for a model, in words: who holds what, who rests, and how well prompts are placed."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from nodes.models import ClusterEvent, NodeModel
from nodes.presenting.displays import ago
from scheduling.models import RouteLease
from scheduling.presenting import words
from scheduling.services import tallying
from scheduling.services.tallying import Counts

MOST_LEASES = 50
MOST_RESTING = 50
HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """An hour of one policy; each sentence explains the number before it."""

    title: str
    picks: int
    lines: tuple[tuple[str, str], ...]


def leases(name: str, *, now: datetime) -> dict[str, Any]:
    """The oldest, and how many there are."""
    found = RouteLease.objects.filter(replica__model_name=name).select_related("replica__node")
    oldest = found.order_by("granted_at", "pk")[:MOST_LEASES]
    return {
        "leases": [
            (one, ago(one.granted_at, now=now), words.coming(one.expires_at, now=now))
            for one in oldest
        ],
        "lease_count": found.count(),
    }


def resting(name: str, *, now: datetime) -> list[tuple[NodeModel, str, ClusterEvent | None]]:
    """Replicas that callers complained of: until when others come first, and the complaint."""
    ejected = NodeModel.objects.filter(model_name=name, ejected_until__gt=now)
    rows = list(ejected.select_related("node").order_by("ejected_until")[:MOST_RESTING])
    complaints = ClusterEvent.objects.filter(
        kind="replica.ejected",
        subject__in={row.process_key for row in rows},
        node__in={row.node_id for row in rows},
    )
    last = complaints.order_by("node_id", "subject", "-id").distinct("node_id", "subject")
    why = {(event.node_id, event.subject): event for event in last} if rows else {}
    return [
        (row, words.coming(row.ejected_until, now=now), why.get((row.node_id, row.process_key)))
        for row in rows
        if row.ejected_until is not None
    ]


def last_hour(name: str, *, now: datetime) -> list[Figures]:
    """By policy: what preferring did, and what it would have done where it is only measured."""
    totals = tallying.totals(since=now - HOUR, models=[name])
    return [_figures(counts, shadow=shadow) for (_, shadow), counts in sorted(totals.items())]


def _figures(counts: Counts, *, shadow: bool) -> Figures:
    would = "would have gone" if shadow else "went"
    lines = [
        (_percent(counts.hits, counts), f"{would} to a replica that has seen how they begin."),
        (
            _percent(counts.pressure, counts),
            "had such a replica, too busy to be preferred. Many of them bring one more replica."
            if not shadow
            else "had such a replica, too busy to be preferred.",
        ),
        (_percent(counts.misses, counts), "began in a way that no replica has seen."),
    ]
    if shadow:
        chance = "went there anyway, by chance: the gain is what is above that."
        lines.append((_percent(counts.lucky, counts), chance))
    chosen = "the preferred replica would have had" if shadow else "the chosen replica had"
    regret = f"requests more than the idlest is what {chosen}, on average: the price of warmth."
    lines.append((f"{counts.mean_regret or 0:.2f}", regret))
    title = "Warm caches, only measured (shadow)" if shadow else "Warm caches preferred"
    return Figures(title=title, picks=counts.picks, lines=tuple(lines))


def _percent(part: int, counts: Counts) -> str:
    return f"{100 * part / max(counts.picks, 1):.0f} %"
