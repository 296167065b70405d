"""What LocalAI's own clients ask for without /api: lists in its words, and one delete."""

from django.conf import settings
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from backendops.api.backends import EVERYONE, ORDER, VIEW
from backendops.api.base import OperationsView, accepted, described
from backendops.api.catalog_serializers import AvailableOut, KnownOut, SystemBackendOut
from backendops.api.catalog_shapes import available_json, known_json, system_json
from backendops.api.serializers import AcceptedOut, DoneOut
from backendops.orders import Order
from backendops.services import browsing, upgrades, waiting
from backendops.states import OperationState, Verb
from clustermgr.lib.errors import NodeRefused


class InstalledEverywhereView(OperationsView):
    needs = {"GET": "backendops.view_nodebackend"}

    @described(
        "listInstalledBackends",
        "What is installed, and where; in LocalAI's shape",
        SystemBackendOut(many=True),
    )
    def get(self, request: Request) -> Response:
        newer = upgrades.available()
        there = browsing.installed()
        return Response([system_json(there[name], newer.get(name)) for name in sorted(there)])


class AvailableView(OperationsView):
    needs = VIEW

    @described(
        "listAvailableBackends",
        "Every entry of every gallery, in LocalAI's shape",
        AvailableOut(many=True),
    )
    def get(self, request: Request) -> Response:
        entries, installed = browsing.offered()
        return Response([available_json(one, installed=one.name in installed) for one in entries])


class KnownView(OperationsView):
    needs = VIEW

    @described(
        "listKnownBackends",
        "Every name that a model could ask for; galleries do not tell modalities",
        KnownOut(many=True),
    )
    def get(self, request: Request) -> Response:
        entries, installed = browsing.offered()
        described_as = {entry.name: entry.description for entry in entries}
        names = sorted(described_as.keys() | installed)
        return Response(
            [
                known_json(name, description=described_as.get(name, ""), there=name in installed)
                for name in names
            ]
        )


class DeleteNowView(OperationsView):
    needs = ORDER

    @described(
        "deleteSystemBackend",
        "Delete from every node that has it; 202 with the job when that takes longer",
        {200: DoneOut, 202: AcceptedOut},
    )
    def post(self, request: Request, backend: str) -> Response:
        placed = self.place(Order.of(Verb.DELETE, backend=backend), EVERYONE)
        roll = waiting.settled(
            placed.operation, within=settings.CLUSTER.answer_within, now=timezone.now()
        )
        if roll.failed and not roll.moving:
            raise NodeRefused(roll.first_error)
        if roll.state == OperationState.SUCCEEDED:
            return Response({"success": True, "message": "Backend deleted successfully"})
        return Response(accepted(placed), status=202)
