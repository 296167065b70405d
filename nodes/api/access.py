"""Join tokens and the event log."""

from django.db.models import Count
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from clustermgr.lib.api import paged_array
from clustermgr.lib.errors import NotFound
from nodes.api.base import (
    PAGING,
    OperatorView,
    findable,
    moment,
    one_of,
    operator_schema,
    truth,
)
from nodes.api.serializers import (
    EventOut,
    IssuedTokenOut,
    JoinTokenIn,
    JoinTokenOut,
    MessageOut,
)
from nodes.models import ClusterEvent, JoinToken
from nodes.services import events, jointokens
from nodes.states import NodeType, Severity

TOKENS = JoinToken.objects.annotate(node_count=Count("nodes"))


class JoinTokensView(OperatorView):
    needs = {"GET": "nodes.view_jointoken", "POST": "nodes.add_jointoken"}

    @operator_schema(
        "listJoinTokens",
        "Every join token, without its secret",
        JoinTokenOut(many=True),
        parameters=PAGING,
    )
    def get(self, request: Request) -> Response:
        return paged_array(request, TOKENS.all(), lambda page: JoinTokenOut(page, many=True).data)

    @operator_schema(
        "issueJoinToken",
        "Make a join token; its secret is shown here and never again",
        IssuedTokenOut,
        code=201,
        body=JoinTokenIn,
    )
    def post(self, request: Request) -> Response:
        asked = self.valid(JoinTokenIn)
        name = asked.pop("name")
        types = tuple(NodeType(kind) for kind in asked.pop("allowed_types"))
        terms = jointokens.Terms(**asked, allowed_types=types)
        token, secret = jointokens.issue(name, by=self.actor, now=timezone.now(), terms=terms)
        shown = JoinTokenOut(TOKENS.get(pk=token.pk)).data
        return Response({"token": shown, "secret": secret}, status=201)


class RevokeTokenView(OperatorView):
    needs = {"POST": "nodes.change_jointoken"}

    @operator_schema("revokeJoinToken", "Stop a token and every worker that uses it", MessageOut)
    def post(self, request: Request, token_id: int) -> Response:
        token = JoinToken.objects.filter(pk=token_id).first()
        if token is None:
            raise NotFound(f"There is no join token {token_id}.")
        jointokens.revoke(token, by=self.actor, now=timezone.now())
        return Response({"message": "join token revoked"})


class EventsView(OperatorView):
    needs = {"GET": "nodes.view_clusterevent"}

    @operator_schema(
        "listEvents",
        "What happened, newest first",
        EventOut(many=True),
        parameters=[
            OpenApiParameter("node", str, description="Name of the node."),
            OpenApiParameter("kind", str, description="node.approved, or node. for all of a kind."),
            OpenApiParameter("severity", str, enum=Severity.values),
            OpenApiParameter("unacknowledged", bool),
            OpenApiParameter("since", str, description="A moment in RFC 3339."),
            *PAGING,
        ],
    )
    def get(self, request: Request) -> Response:
        """Fifty at a time unless asked otherwise."""
        asked, rows = request.query_params, ClusterEvent.objects.order_by("-id")
        if node := asked.get("node"):
            rows = rows.filter(subject=findable("node", node))
        if kind := asked.get("kind"):
            rows = rows.filter(kind__startswith=findable("kind", kind))
        if severity := asked.get("severity"):
            rows = rows.filter(severity=one_of("severity", severity, Severity))
        if unseen := asked.get("unacknowledged"):
            rows = rows.filter(acknowledged_at__isnull=truth("unacknowledged", unseen))
        if since := asked.get("since"):
            rows = rows.filter(at__gte=moment("since", since))
        return paged_array(request, rows, lambda page: EventOut(page, many=True).data, page_size=50)


class AcknowledgeView(OperatorView):
    needs = {"POST": "nodes.change_clusterevent"}

    @operator_schema("acknowledgeEvent", "Take an event off the attention list", MessageOut)
    def post(self, request: Request, event_id: int) -> Response:
        event = ClusterEvent.objects.filter(pk=event_id).first()
        if event is None:
            raise NotFound(f"There is no event {event_id}.")
        events.acknowledge(event, by=self.actor, now=timezone.now())
        return Response({"message": "event acknowledged"})
