"""The catalog, and orders for every node it makes sense for."""

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from backendops.api import shapes
from backendops.api.base import KEY, OperationsView, accepted, described, order_of, status_url
from backendops.api.catalog_serializers import (
    AppliedOut,
    CatalogOut,
    CheckedGalleryOut,
    UpgradeAllOut,
)
from backendops.api.catalog_shapes import catalog_json, galleries_json
from backendops.api.serializers import AcceptedOut, ApplyIn, ExternalIn, UpgradeAllIn
from backendops.models import NodeBackend
from backendops.orders import Order, Target
from backendops.services import browsing, upgrades
from backendops.services.browsing import SORTS, Look
from backendops.states import Verb
from clustermgr.lib.api import positive
from clustermgr.lib.errors import InvalidInput
from clustermgr.lib.queue import after_commit
from nodes.api.base import findable

VIEW = {"GET": "backendops.view_gallerybackend"}
ORDER = {"POST": "backendops.request_operation"}
EVERYONE = Target(everyone=True)
LARGEST_PAGE = 500
_NODE = {"type": "object", "properties": {"node_id": {"type": "string"}}, "required": ["node_id"]}
_WORDS = ("backend_name", "installed_version", "available_version", "gallery", "reason")
# By the backend's name, as LocalAI tells them; a map is no serializer
UPGRADES = {
    "type": "object",
    "additionalProperties": {
        "type": "object",
        "required": [*_WORDS, "nodes"],
        "properties": {
            **{word: {"type": "string"} for word in (*_WORDS, "installed_digest")},
            "available_digest": {"type": "string"},
            "node_drift": {"type": "array", "items": _NODE},
            "nodes": {"type": "array", "items": _NODE},
        },
    },
}


class CatalogView(OperationsView):
    needs = VIEW

    @described(
        "listBackends",
        "What the galleries have, and where it is installed",
        CatalogOut,
        parameters=[
            OpenApiParameter("term", str, description="Part of the name or description."),
            OpenApiParameter("tag", str),
            OpenApiParameter("page", int),
            OpenApiParameter("items", int, description=f"Per page, at most {LARGEST_PAGE}."),
            OpenApiParameter("sort", str, enum=list(SORTS)),
            OpenApiParameter("order", str, enum=["asc", "desc"]),
        ],
    )
    def get(self, request: Request) -> Response:
        asked = request.query_params
        look = Look(
            term=findable("term", asked.get("term", "")),
            tag=findable("tag", asked.get("tag", "")),
            page=positive(request, "page", 1),
            items=min(positive(request, "items", 9), LARGEST_PAGE),
            sort=_choice("sort", asked.get("sort") or "name", SORTS),
            descending=_choice("order", asked.get("order") or "asc", ("asc", "desc")) == "desc",
        )
        return Response(catalog_json(look, browsing.browse(look)))


class InstallEverywhereView(OperationsView):
    needs = ORDER

    @described("installBackend", "Install on every node it fits", AcceptedOut, parameters=[KEY])
    def post(self, request: Request, backend: str) -> Response:
        placed = self.place(Order.of(Verb.INSTALL, backend=backend), EVERYONE)
        return Response(accepted(placed))


class InstallExternalView(OperationsView):
    needs = ORDER

    @described(
        "installExternalBackend",
        "Install from a uri on every node",
        AcceptedOut,
        body=ExternalIn,
        parameters=[KEY],
    )
    def post(self, request: Request) -> Response:
        asked = self.valid(ExternalIn)
        placed = self.place(order_of(Verb.INSTALL, asked), EVERYONE, reason=asked["reason"])
        return Response(accepted(placed))


class DeleteEverywhereView(OperationsView):
    needs = ORDER

    @described("deleteBackend", "Delete from every node that has it", AcceptedOut, parameters=[KEY])
    def post(self, request: Request, backend: str) -> Response:
        placed = self.place(Order.of(Verb.DELETE, backend=backend), EVERYONE)
        return Response(accepted(placed))


class UpgradeEverywhereView(OperationsView):
    needs = ORDER

    @described("upgradeBackend", "Upgrade on every node that has it", AcceptedOut, parameters=[KEY])
    def post(self, request: Request, backend: str) -> Response:
        placed = self.place(Order.of(Verb.UPGRADE, backend=backend), EVERYONE)
        return Response({**accepted(placed), "uuid": str(placed.operation.pk)})


class UpgradesView(OperationsView):
    needs = VIEW

    @described("listUpgrades", "What could be newer, by backend", UPGRADES)
    def get(self, request: Request) -> Response:
        return Response(_available())


class CheckUpgradesView(OperationsView):
    needs = ORDER

    @described("checkUpgrades", "Read the galleries again; answers what is known now", UPGRADES)
    def post(self, request: Request) -> Response:
        after_commit("backendops.check_upgrades")
        return Response(_available())


class UpgradeAllView(OperationsView):
    needs = ORDER

    @described(
        "upgradeAll",
        "Order every available upgrade, or see what that would do",
        UpgradeAllOut,
        body=UpgradeAllIn,
    )
    def post(self, request: Request) -> Response:
        asked = self.valid(UpgradeAllIn)
        only, reason = asked["backends"], asked["reason"]
        if asked["dry_run"]:
            steps = [shapes.step_json(step, None, "") for step in upgrades.preview(only)]
        else:
            begun = upgrades.upgrade_all(
                by=self.actor, now=timezone.now(), only=only, reason=reason
            )
            steps = [shapes.step_json(one.step, one.operation, one.refusal) for one in begun]
        return Response({"upgrades": steps, "dry_run": asked["dry_run"]})


class ApplyView(OperationsView):
    needs = ORDER

    @described(
        "applyBackend",
        "Install on every node it fits; `force` downloads again where it is installed",
        AppliedOut,
        body=ApplyIn,
        parameters=[KEY],
    )
    def post(self, request: Request) -> Response:
        asked = self.valid(ApplyIn)
        name = asked["id"].rpartition("@")[2]
        again = asked["force"] and NodeBackend.objects.of_present_nodes().filter(name=name).exists()
        verb = Verb.REINSTALL if again else Verb.INSTALL
        return _applied(self.place(Order.of(verb, backend=asked["id"]), EVERYONE))


class DeleteAliasView(OperationsView):
    needs = ORDER

    @described("removeBackend", "Delete from every node, under LocalAI's other path", AppliedOut)
    def post(self, request: Request, backend: str) -> Response:
        return _applied(self.place(Order.of(Verb.DELETE, backend=backend), EVERYONE))


class UpgradeAliasView(OperationsView):
    needs = ORDER

    @described("renewBackend", "Upgrade on every node, under LocalAI's other path", AppliedOut)
    def post(self, request: Request, backend: str) -> Response:
        return _applied(self.place(Order.of(Verb.UPGRADE, backend=backend), EVERYONE))


class UpgradesAliasView(UpgradesView):
    @described("listBackendUpgrades", "The same under LocalAI's other path", UPGRADES)
    def get(self, request: Request) -> Response:
        return super().get(request)


class CheckUpgradesAliasView(CheckUpgradesView):
    @described("checkBackendUpgrades", "The same under LocalAI's other path", UPGRADES)
    def post(self, request: Request) -> Response:
        return super().post(request)


class GalleriesView(OperationsView):
    needs = VIEW

    @described(
        "listGalleries", "The galleries, and when each was last read", CheckedGalleryOut(many=True)
    )
    def get(self, request: Request) -> Response:
        return Response(galleries_json())


def _available() -> dict[str, Any]:
    return {name: shapes.upgrade_json(found) for name, found in upgrades.available().items()}


def _applied(placed: Any) -> Response:
    key, url = str(placed.operation.pk), status_url(placed.operation)
    return Response({"ID": key, "StatusURL": url, "uuid": key, "status_url": url})


def _choice(name: str, value: str, choices: Any) -> str:
    if value not in choices:
        raise InvalidInput(f"{name} must be one of {', '.join(choices)}.")
    return value
