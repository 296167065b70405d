"""How a node looks: words, colours and bars, the same on every page and in every refresh."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.template.loader import render_to_string
from django.utils.html import format_html
from django.utils.safestring import SafeString

from nodes.labelling import AUTO_KEYS, GIB
from nodes.models import BackendNode
from nodes.services import labels

LATE = timedelta(seconds=30)
MAX_CHIPS = 4
FULL, TIGHT = 95, 80  # percent
# Every machine has these and nobody looks for them
DULL = frozenset({"node.name", "node.replica-slots"})
# What a refresh replaces; the rest of a row stays, its checkbox above all
LIVE = ("status", "heartbeat", "vram", "ram", "disk", "load")


@dataclass(frozen=True, slots=True, kw_only=True)
class Age:
    text: str
    tone: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """Used of total. Without a total there is nothing to draw."""

    name: str
    text: str = ""
    percent: int = 0
    tone: str = "good"
    title: str = ""
    known: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One node, ready for a template."""

    node: BackendNode
    heartbeat: Age
    vram: Bar
    ram: Bar
    disk: Bar
    chips: list[tuple[str, str]]
    more: int
    stale: bool


def looks(nodes: Iterable[BackendNode], *, now: datetime) -> list[Look]:
    """Each node as it looks at `now`; one query for all their labels."""
    rows = list(nodes)
    found = labels.effective([node.pk for node in rows])
    return [look(node, found[node.pk], now=now) for node in rows]


def look(node: BackendNode, effective: Mapping[str, str], *, now: datetime) -> Look:
    shown = [(key, value) for key, value in effective.items() if key not in DULL]
    # What people chose first: the computed ones repeat other columns
    chips = sorted(shown, key=lambda pair: (pair[0] in AUTO_KEYS, pair[0]))
    stale = now - node.last_heartbeat > settings.CLUSTER.heartbeat_stale_after
    return Look(
        node=node,
        heartbeat=heartbeat(node.last_heartbeat, now=now),
        vram=vram(node, stale=stale),
        ram=bar("RAM", total=node.total_ram, free=node.available_ram, stale=stale),
        disk=bar("Disk", total=node.total_disk, free=node.available_disk, stale=stale),
        chips=chips[:MAX_CHIPS],
        more=max(len(chips) - MAX_CHIPS, 0),
        stale=stale,
    )


def cell(name: str, look: Look, *, oob: bool = False) -> SafeString:
    """One live part of a row, with the id by which a refresh finds it again."""
    return format_html(
        '<div id="n-{}-{}" class="cm-cell"{}>{}</div>',
        look.node.pk,
        name,
        SafeString(' hx-swap-oob="true"' if oob else ""),
        render_to_string(f"console/nodes/_{name}.html", {"look": look, "node": look.node}),
    )


def labels_cell(look: Look) -> SafeString:
    return SafeString(render_to_string("console/nodes/_labels.html", {"look": look}))


def heartbeat(last: datetime, *, now: datetime) -> Age:
    silence = now - last
    tone = "good" if silence <= LATE else "warn"
    if silence > settings.CLUSTER.heartbeat_stale_after:
        tone = "bad"
    return Age(
        text=ago(last, now=now), tone=tone, title=f"Last heartbeat {last:%Y-%m-%d %H:%M:%S} UTC"
    )


def ago(moment: datetime, *, now: datetime) -> str:
    seconds = max(int((now - moment).total_seconds()), 0)
    if seconds < 60:
        return f"{seconds} s ago"
    if seconds < 3600:
        return f"{seconds // 60} min ago"
    if seconds < 48 * 3600:
        return f"{seconds // 3600} h ago"
    return f"{seconds // 86400} days ago"


def vram(node: BackendNode, *, stale: bool) -> Bar:
    """Measured against the budget: what a budget withholds is not used, it is not ours."""
    ceiling = int(node.vram_budget_bytes or node.total_vram)
    hints = []
    if node.vram_budget_bytes:
        hints.append(f"budget {size(ceiling)} of {size(int(node.total_vram))}")
    if node.reserved_vram:
        hints.append(f"{size(int(node.reserved_vram))} reserved")
    free = int(node.available_vram) - int(node.reserved_vram)
    return bar("VRAM", total=ceiling, free=free, stale=stale, hint=", ".join(hints))


def bar(name: str, *, total: Any, free: Any, stale: bool = False, hint: str = "") -> Bar:
    whole, used = int(total), min(max(int(total) - int(free), 0), int(total))
    if not whole:
        return Bar(name=name, known=False, title=f"The worker reports no {name}.")
    percent = round(100 * used / whole)
    tone = "bad" if percent >= FULL else "warn" if percent >= TIGHT else "good"
    text = f"{_number(used, whole)} / {size(whole)}"
    title = f"{name}: {text} used ({percent} %)" + (f"; {hint}" if hint else "")
    if stale:
        tone, title = "old", f"{title}. As last reported, the node is silent since."
    return Bar(name=name, text=text, percent=percent, tone=tone, title=title)


def size(count: int) -> str:
    return f"{_number(count, count)} {'TB' if count >= 1024 * GIB else 'GB'}"


def _number(count: int, scale: int) -> str:
    """In the unit that suits `scale`; one decimal where it says something."""
    amount = count / (1024 * GIB if scale >= 1024 * GIB else GIB)
    return f"{amount:.1f}".removesuffix(".0") if amount < 10 else f"{amount:.0f}"
