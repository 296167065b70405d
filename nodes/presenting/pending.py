"""Machines that wait to be let in, with what an operator compares before saying yes."""

from dataclasses import dataclass

from django.http import HttpRequest

from nodes.labelling import AUTO_KEYS
from nodes.models import BackendNode
from nodes.presenting.displays import size
from nodes.services import labels

SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    node: BackendNode
    facts: list[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    candidates: list[Candidate]
    total: int
    may_approve: bool

    @property
    def version(self) -> str:
        """Changes when the panel does: a refresh must not swap a button under the mouse."""
        return f"{self.total}:" + ",".join(str(one.node.pk)[:8] for one in self.candidates)

    @property
    def more(self) -> int:
        return self.total - len(self.candidates)


def panel(request: HttpRequest) -> Panel:
    """The longest-waiting first; three queries."""
    waiting = BackendNode.objects.waiting_for_approval()
    oldest = list(waiting.select_related("join_token").order_by("created_at")[:SHOWN])
    found = labels.effective([node.pk for node in oldest])
    return Panel(
        candidates=[_candidate(node, found[node.pk]) for node in oldest],
        total=waiting.count() if len(oldest) == SHOWN else len(oldest),
        may_approve=request.user.has_perm("nodes.approve_backendnode"),
    )


def _candidate(node: BackendNode, effective: dict[str, str]) -> Candidate:
    told = [f"{key}={value}" for key, value in sorted(effective.items()) if key not in AUTO_KEYS]
    gpu = " ".join(filter(None, [node.gpu_vendor, node.gpu_compute_capability]))
    facts = {
        "Address": node.address or node.http_address or "none given",
        "Type": node.node_type,
        "GPU": gpu or "none",
        "VRAM": size(int(node.total_vram)) if node.total_vram else "none",
        "RAM": size(int(node.total_ram)) if node.total_ram else "not reported",
        "Token": node.join_token.name if node.join_token else "none",
        "Labels": ", ".join(told) or "none",
        "First seen": f"{node.created_at:%Y-%m-%d %H:%M} UTC",
    }
    return Candidate(node=node, facts=list(facts.items()))
