"""Dead letters: grouped by cause, put back, or let go with a reason."""

from typing import Any

from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from backendops.api.base import OperationsView, described
from backendops.api.serializers import CountOut, DeadLettersOut, DiscardIn, LettersIn
from backendops.models import PendingBackendOp
from backendops.services import deadletters, redriving
from clustermgr.lib.errors import InvalidInput


class DeadLettersView(OperationsView):
    needs = {"GET": "backendops.view_pendingbackendop"}

    @described("listDeadLetters", "What failed too often, by cause", DeadLettersOut)
    def get(self, request: Request) -> Response:
        causes = [
            {
                "cause": cause.words,
                "count": cause.count,
                "firstAt": cause.first_at,
                "lastAt": cause.last_at,
                "backends": cause.backends,
                "ops": cause.ops,
            }
            for cause in deadletters.causes()
        ]
        return Response({"causes": causes, "total": sum(cause["count"] for cause in causes)})


class RedriveView(OperationsView):
    needs = {"POST": "backendops.request_operation"}

    @described(
        "redriveDeadLetters", "Put dead letters back into the queue", CountOut, body=LettersIn
    )
    def post(self, request: Request) -> Response:
        letters = _letters(self.valid(LettersIn))
        count = redriving.redrive(letters, by=self.actor, now=timezone.now())
        return Response({"success": True, "message": "back in the queue", "count": count})


class DiscardView(OperationsView):
    needs = {"POST": "backendops.acknowledge_operation"}

    @described(
        "discardDeadLetters", "Let dead letters go; the record keeps them", CountOut, body=DiscardIn
    )
    def post(self, request: Request) -> Response:
        asked = self.valid(DiscardIn)
        count = redriving.discard(
            _letters(asked), by=self.actor, reason=asked["reason"], now=timezone.now()
        )
        return Response({"success": True, "message": "discarded", "count": count})


def _letters(asked: dict[str, Any]) -> list[PendingBackendOp]:
    chosen = sum((bool(asked["ops"]), bool(asked["cause"]), asked["all"]))
    if chosen != 1:
        raise InvalidInput("Give ops, a cause, or all: exactly one.")
    if asked["cause"]:
        return list(deadletters.of_cause(asked["cause"]))
    dead = PendingBackendOp.objects.dead()
    return list(dead if asked["all"] else dead.filter(pk__in=asked["ops"]))
