"""Why an order would change nothing or be refused, in a sentence; empty when it makes sense.

Pages ask before they offer a button or list who would be touched. The services decide again:
between the question and the order anything may happen.
"""

from collections.abc import Callable

from nodes.models import BackendNode, NodeCredential
from nodes.services import draining, registration

Obstacle = Callable[[BackendNode], str]

approve: Obstacle = registration.why_not_approve


def cordon(node: BackendNode) -> str:
    if node.cordoned_at is not None:
        return f"{node.name} is already cordoned (by {node.cordoned_by})."
    return _retired(node)


def uncordon(node: BackendNode) -> str:
    return _retired(node) or ("" if node.cordoned_at else f"{node.name} is not cordoned.")


def drain(node: BackendNode) -> str:
    # The drain that a stopping worker began may be taken over: it outlives the worker then.
    if node.drain_requested_at is not None and not node.drain_by_worker:
        return f"{node.name} is already being drained (by {node.drain_requested_by})."
    return _retired(node)


def move_deadline(node: BackendNode) -> str:
    if node.drain_requested_at is None or node.drain_by_worker:
        return f"{node.name} is not being drained by an operator."
    return _retired(node) or (f"{node.name} is drained." if node.drained_at else "")


def resume(node: BackendNode) -> str:
    return _retired(node) or ("" if node.drain_requested_at else f"{node.name} is not draining.")


def stop_worker(node: BackendNode) -> str:
    if node.stop_ordered_at is not None:
        return f"The worker of {node.name} is to stop already."
    return _retired(node) or draining.why_not_stop_worker(node)


def release(node: BackendNode) -> str:
    return "" if node.quarantined_until else f"{node.name} is not quarantined."


def retire(node: BackendNode) -> str:
    return f"{node.name} is retired already." if node.retired_at else ""


def readmit(node: BackendNode) -> str:
    return "" if node.retired_at else f"{node.name} is not retired."


def release_token(node: BackendNode) -> str:
    return "" if node.join_token_id else f"{node.name} is bound to no token."


def revoke_credentials(node: BackendNode) -> str:
    # Expired ones, too: the button that does nothing is better than the clock that is read here
    held = NodeCredential.objects.filter(node=node, revoked_at=None).exists()
    return "" if held else f"{node.name} holds no credential for the bus."


def label(node: BackendNode) -> str:
    return _retired(node)


def _retired(node: BackendNode) -> str:
    return f"{node.name} is retired; readmit it first." if node.retired_at else ""
