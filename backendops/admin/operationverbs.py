"""What can be done with an operation, each asked back before it is done."""

from typing import Any

from django.http import HttpRequest
from django.utils import timezone
from unfold.enums import ActionVariant

from backendops.admin.forms import ReasonDialog
from backendops.models import Operation
from backendops.services import cancelling, redriving
from clustermgr.lib.admin import Dialog, ReadOnlyAdmin, ops_action

Filled = dict[str, Any]


class OperationVerbs(ReadOnlyAdmin):
    """Each verb with its permission; presenting.buttons says when it makes sense."""

    verbs = {
        "request": "backendops.request_operation",
        "cancel": "backendops.cancel_operation",
        "acknowledge": "backendops.acknowledge_operation",
    }
    actions_detail = ["retry", "dismiss", "cancel"]
    actions_detail_hide_default = True

    def get_actions_detail(self, request: HttpRequest, object_id: Any) -> list[Any]:
        """None at the top, where the theme never refreshes them: see presenting.buttons."""
        return []

    @ops_action(
        "Cancel",
        verb="cancel",
        icon="cancel",
        variant=ActionVariant.DANGER,
        dialog=Dialog(
            title="Cancel this operation?",
            explain="What waits is given up at once. A node that is already at it is asked to"
            " stop; if it cannot, it will finish and its result will be recorded.",
            submit="Cancel the operation",
            leave="Keep it running",
            form=ReasonDialog,
        ),
    )
    def cancel(self, request: HttpRequest, operation: Operation, filled: Filled) -> str:
        by, now = request.user.get_username(), timezone.now()
        count = cancelling.cancel(operation, by=by, now=now, reason=filled["reason"])
        return f"Cancelled {operation} on {count} node{'' if count == 1 else 's'}."

    @ops_action(
        "Retry failed nodes",
        verb="request",
        icon="replay",
        variant=ActionVariant.PRIMARY,
        dialog=Dialog(
            title="Retry on the nodes that failed?",
            explain="A new operation asks exactly those nodes again, with everything as it was."
            " The others are left alone.",
            submit="Retry",
        ),
    )
    def retry(self, request: HttpRequest, operation: Operation, _: Filled) -> str:
        placed = redriving.retry(
            operation, by=request.user.get_username(), now=timezone.now()
        ).operation
        count = placed.shares.count()
        return f"Retrying {operation} on {count} node{'' if count == 1 else 's'}."

    @ops_action(
        "Dismiss",
        verb="acknowledge",
        icon="check",
        dialog=Dialog(
            title="Dismiss this failure?",
            explain="It leaves the strip and the badge, and stays in the record with its error."
            " Nothing is retried or undone by this.",
            submit="Dismiss",
        ),
    )
    def dismiss(self, request: HttpRequest, operation: Operation, _: Filled) -> str:
        redriving.acknowledge(operation, by=request.user.get_username(), now=timezone.now())
        return f"Dismissed: {operation}. It stays in the record."
