"""What can be done about an order now; each button leads to a dialog.

Never a permission by itself: who comes too late with an old page gets the service's sentence.
"""

from dataclasses import dataclass

from backendops.models import PendingBackendOp
from backendops.services.rollups import Rollup
from backendops.services.summaries import cancellable
from backendops.states import OpState, Verb

# verb -> the permission it needs
NEEDS = {
    "retry": "backendops.request_operation",
    "dismiss": "backendops.acknowledge_operation",
    "cancel": "backendops.cancel_operation",
    "check_now": "backendops.request_operation",
    "try_now": "backendops.request_operation",
    "redrive": "backendops.request_operation",
    "discard": "backendops.acknowledge_operation",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Button:
    """`verb` is an action of the admin's page about it."""

    verb: str
    title: str
    label: str  # for whoever does not see the row around it


def of_operation(roll: Rollup) -> list[Button]:
    name = f"{roll.verb} of {roll.backend}"
    found = []
    if roll.failed:
        found.append(
            Button(verb="retry", title="Retry failed nodes", label=f"Retry {name} where it failed")
        )
    if roll.needs_attention and not roll.active:
        found.append(Button(verb="dismiss", title="Dismiss", label=f"Dismiss {name}"))
    if _stoppable(roll):
        found.append(Button(verb="cancel", title="Cancel", label=f"Cancel {name}"))
    return found


def _stoppable(roll: Rollup) -> bool:
    """As summaries.cancellable says of each op: a delete is not stopped halfway."""
    waits = roll.counts[OpState.QUEUED] + roll.counts[OpState.FAILED]
    at_it = roll.counts[OpState.RUNNING] + roll.counts[OpState.UNCONFIRMED]
    return bool(waits or (at_it and roll.verb != Verb.DELETE))


def of_op(op: PendingBackendOp) -> list[Button]:
    name = f"{op.verb} of {op.backend} on {op.node.name}"
    found = []
    if op.state in (OpState.UNCONFIRMED, OpState.CANCELLING):
        found.append(Button(verb="check_now", title="Check now", label=f"Check {name} now"))
    if op.state == OpState.FAILED:
        found.append(Button(verb="try_now", title="Try now", label=f"Try {name} now"))
    if op.state == OpState.DEAD:
        found.append(Button(verb="redrive", title="Try again", label=f"Try {name} again"))
        found.append(Button(verb="discard", title="Discard", label=f"Discard {name}"))
    if cancellable(op):
        found.append(Button(verb="cancel", title="Cancel", label=f"Cancel {name}"))
    return found
