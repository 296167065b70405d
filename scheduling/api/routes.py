"""Leases for callers that come through Django: whoever the door sends on, and the schema.

Bodies are read by the door's own reader: what one refuses, the other does, in the same words.
"""

from datetime import timedelta
from typing import Any
from uuid import UUID

from django.utils import timezone
from drf_spectacular.utils import OpenApiResponse
from rest_framework.request import Request
from rest_framework.response import Response

from clustermgr.lib.errors import NotFound
from clustermgr.lib.text import uuid_in
from nodes.api.base import OperatorView, operator_schema
from nodes.api.serializers import ErrorOut
from scheduling.api import figures, routebody
from scheduling.api.route_serializers import (
    FailedOut,
    FailureIn,
    LeaseOut,
    NotYetOut,
    ReleasedManyOut,
    ReleasedOut,
    ReleaseManyIn,
    RenewedOut,
    RenewIn,
    RouteIn,
)
from scheduling.routing.asks import Ask, Lease
from scheduling.services import complaints, leasing
from scheduling.services.complaints import Complaint, Heard
from scheduling.services.routing import default_router

ROUTE = {"POST": "scheduling.request_route", "DELETE": "scheduling.request_route"}
NOT_YET = {503: OpenApiResponse(NotYetOut)}
AWAY = {503: OpenApiResponse(ErrorOut)}  # `database_away`
# One of Django's few seats is held meanwhile; the door holds none
PATIENCE = timedelta(seconds=2)


class RouteView(OperatorView):
    needs = ROUTE

    @operator_schema(
        "route",
        "A replica for one request, with a lease on it",
        LeaseOut,
        body=RouteIn,
        errors=NOT_YET,
    )
    def post(self, request: Request) -> Response:
        with figures.asked():
            given = routebody.read(request.body, routebody.RouteIn)
            ask, within = routebody.ask_of(given, holder=self.actor)
            lease = default_router(clock=timezone.now).lease(ask, within=min(within, PATIENCE))
        return Response(_granted(lease))


class LeaseView(OperatorView):
    needs = ROUTE

    @operator_schema(
        "endLease", "Give a replica back; twice does no harm", ReleasedOut, errors=AWAY
    )
    def delete(self, request: Request, lease_id: str) -> Response:
        return Response({"released": default_router(clock=timezone.now).release(_lease(lease_id))})


class RenewView(OperatorView):
    needs = ROUTE

    @operator_schema(
        "renewLease", "Hold a replica for longer", RenewedOut, body=RenewIn, errors=AWAY
    )
    def post(self, request: Request, lease_id: str) -> Response:
        lease = _lease(lease_id)
        given = routebody.read(request.body, routebody.RenewIn)
        until = timezone.now() + routebody.ttl_of(given.ttl)
        renewed = leasing.renew([lease], until=until)
        if lease not in renewed:
            raise NotFound("There is no such lease; it was released, or has expired.")
        return Response({"lease_id": str(lease), "expires_at": renewed[lease]})


class ReleaseView(OperatorView):
    needs = ROUTE

    @operator_schema(
        "endLeases", "Give many replicas back", ReleasedManyOut, body=ReleaseManyIn, errors=AWAY
    )
    def post(self, request: Request) -> Response:
        given = routebody.read(request.body, routebody.ReleaseIn)
        return Response({"released": len(leasing.release(routebody.leases_of(given)))})


class FailureView(OperatorView):
    needs = ROUTE

    @operator_schema(
        "reportFailure",
        "A replica failed: another lease",
        FailedOut,
        body=FailureIn,
        errors=AWAY,
    )
    def post(self, request: Request, lease_id: str) -> Response:
        given, lease = self.valid(FailureIn), _lease(lease_id)
        kind, detail = Complaint(given["kind"]), given["detail"]
        heard = complaints.hear(lease, kind, by=self.actor, detail=detail, now=timezone.now())
        other = _another(heard, holder=self.actor) if given["another"] else None
        told = _granted(other) if other else None
        return Response({"replica": str(heard.replica), "done": heard.done, "lease": told})


def _another(heard: Heard, *, holder: str) -> Lease | None:
    excluded = frozenset({heard.replica})
    ask = Ask(model=heard.model, holder=holder, ttl=routebody.ttl_of(None), excluded=excluded)
    return default_router(clock=timezone.now).acquire(ask)


def _granted(lease: Lease) -> dict[str, Any]:
    figures.granted(lease)
    return routebody.answer(lease)


def _lease(text: str) -> UUID:
    found = uuid_in(text)
    if found is None:
        raise NotFound("There is no such lease.")
    return found
