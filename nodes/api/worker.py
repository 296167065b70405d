"""What workers call, byte-compatible with LocalAI's: no redirects, its two error shapes."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.utils import timezone
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from clustermgr.lib import gojson
from clustermgr.lib.bodies import bounded
from clustermgr.lib.errors import DomainError, NotFound, Unauthenticated
from nodes.api.base import Endpoint
from nodes.api.serializers import MessageOut
from nodes.api.worker_serializers import (
    HeartbeatIn,
    RegisterIn,
    RegisterOut,
    ReplicaOut,
    WorkerErrorOut,
)
from nodes.models import BackendNode, JoinToken
from nodes.services import (
    admission,
    beating,
    credentials,
    draining,
    jointokens,
    lifecycle,
    registration,
)
from nodes.wire import HeartbeatReport, RegisterRequest, register_reply

SCHEME = "Bearer "  # exact, as upstream compares it
ERRORS = {
    code: OpenApiResponse(WorkerErrorOut) for code in (400, 401, 403, 404, 405, 410, 413, 429)
}


def worker_schema(
    operation: str, summary: str, success: Any, *, code: int = 200, body: Any = None
) -> Callable[[Endpoint], Endpoint]:
    """Describe an endpoint; the registration token is checked by the view, not by DRF."""
    decorator: Callable[[Endpoint], Endpoint] = extend_schema(
        operation_id=operation,
        summary=summary,
        tags=["worker"],
        auth=[{"registrationToken": []}],  # type: ignore[list-item]
        request=body,
        responses={code: success, **ERRORS},
    )
    return decorator


class NotAdmitted(Exception):
    """The credential itself was refused: upstream answers that in a flat shape."""

    def __init__(self, refusal: DomainError) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


class WorkerView(APIView):
    """Knows the token before the handler runs; speaks upstream's error shapes."""

    authentication_classes = ()
    permission_classes = ()
    token: JoinToken

    def perform_content_negotiation(self, request: Request, force: bool = False) -> Any:
        """JSON, whatever a worker or its proxy says it accepts."""
        return super().perform_content_negotiation(request, force=True)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        try:
            self.token = jointokens.authenticate(
                secret_of(request),
                # A server on a Unix socket knows no address
                source=request.META.get("REMOTE_ADDR", ""),
                now=timezone.now(),
            )
        except DomainError as refusal:
            raise NotAdmitted(refusal) from refusal

    def handle_exception(self, exc: Exception) -> Response:
        if isinstance(exc, NotAdmitted):
            return Response({"error": str(exc)}, status=exc.refusal.http_status)
        if isinstance(exc, DomainError):
            return _node_error(exc.http_status, str(exc))
        response = super().handle_exception(exc)
        return _node_error(response.status_code, str(response.data["detail"]))

    def node(self, node_id: str) -> BackendNode:
        try:
            identity = UUID(node_id)
        except ValueError:
            raise NotFound("There is no such node; the worker must register again.") from None
        return admission.node_of(identity, token=self.token, now=timezone.now())

    def body(self) -> Any:
        """The JSON body; an empty one is an empty object, whatever its content type."""
        return gojson.parse(bounded(self.request._request))


class RegisterView(WorkerView):
    @worker_schema("registerWorker", "Join, or renew", RegisterOut, code=201, body=RegisterIn)
    def post(self, request: Request) -> Response:
        asked = RegisterRequest.decode(self.body())
        now, secret = timezone.now(), secret_of(request)
        admission.check_repeated(asked.token, secret=secret, token=self.token, now=now)
        node = registration.register(asked, token=self.token, now=now)
        granted = credentials.mint(node, now=now)
        reply = register_reply(
            node_id=node.pk,
            name=node.name,
            node_type=node.node_type,
            status=node.status,
            created_at=node.created_at,
            nats_jwt=granted.jwt,
            nats_user_seed=granted.seed,
            ask_again_after=registration.ask_again_after(node),
        )
        return Response(reply, status=201)


class HeartbeatView(WorkerView):
    """The thorough way in; nodes.api.door answers the beats it has seen admitted here."""

    @worker_schema("workerHeartbeat", "I am alive", MessageOut, body=HeartbeatIn)
    def post(self, request: Request, node_id: str) -> Response:
        node = self.node(node_id)
        # Like upstream, whatever the body says: the beat itself counts
        report = HeartbeatReport.read(bounded(request._request))
        beat = beating.Beat(node_id=node.pk, received_at=timezone.now(), report=report)
        beating.record([beat])
        return Response({"message": "heartbeat received"})


class DrainView(WorkerView):
    @worker_schema("workerDrain", "I am about to stop", MessageOut)
    def post(self, request: Request, node_id: str) -> Response:
        draining.worker_drain(self.node(node_id), now=timezone.now())
        return Response({"message": "node set to draining"})


class ResumeView(WorkerView):
    @worker_schema("workerResume", "I am not stopping after all", MessageOut)
    def post(self, request: Request, node_id: str) -> Response:
        draining.worker_resume(self.node(node_id), now=timezone.now())
        return Response({"message": "node resumed"})


class DeregisterView(WorkerView):
    @worker_schema("workerDeregister", "I stop now", MessageOut)
    def post(self, request: Request, node_id: str) -> Response:
        lifecycle.leave(self.node(node_id), now=timezone.now())
        return Response({"message": "node set to offline"})


class NodeView(WorkerView):
    @worker_schema("workerDelete", "I stop now; the same as deregister", MessageOut)
    def delete(self, request: Request, node_id: str) -> Response:
        lifecycle.leave(self.node(node_id), now=timezone.now())
        return Response({"message": "node set to offline"})


class ModelsView(WorkerView):
    """What a stopping worker polls until nothing is in flight."""

    @worker_schema("listWorkerModels", "What still runs on me", ReplicaOut(many=True))
    def get(self, request: Request, node_id: str) -> Response:
        rows = self.node(node_id).replicas.order_by("model_name", "replica_index")
        return Response(ReplicaOut(rows, many=True).data)


def secret_of(request: Request) -> str:
    """The bearer token, or a refusal when there is none: nobody comes in without."""
    header = request.headers.get("Authorization", "")
    if not header.startswith(SCHEME) or header == SCHEME:
        raise Unauthenticated("A registration token is required: Authorization: Bearer <token>.")
    return header.removeprefix(SCHEME)


def _node_error(status: int, message: str) -> Response:
    error = {"code": status, "message": message, "type": "node_error"}
    return Response({"error": error}, status=status)
