"""A worker and an operator, as far as HTTP can tell."""

import json
from typing import TYPE_CHECKING, Any

from django.contrib.auth.models import Permission, User
from django.test import Client

from clustermgr import tokens
from tests.factories import NOW

if TYPE_CHECKING:
    from django.test.client import _MonkeyPatchedWSGIResponse as Reply

SECRET = "test-registration-token"

# Everything a LocalAI worker sends; the token is added when it is known.
REGISTRATION: dict[str, Any] = {
    "name": "gpu-a",
    "address": "10.0.0.7:50051",
    "http_address": "10.0.0.7:50050",
    "total_vram": 25757220864,
    "available_vram": 25757220864,
    "total_ram": 67430035456,
    "available_ram": 51539607552,
    "total_disk": 1000204886016,
    "available_disk": 800163908812,
    "gpu_vendor": "nvidia",
    "gpu_compute_capability": "8.9",
    "capability": "nvidia-cuda-12",
    "max_replicas_per_model": 2,
    "vram_budget": "80%",
    "labels": {"tier": "fast", "node.replica-slots": "2"},
}


class Caller:
    """Sends bytes with a bearer token and nothing else: no cookie, no redirect followed."""

    def __init__(self, secret: str) -> None:
        self.secret = secret
        self._client = Client()

    def send(
        self,
        method: str,
        path: str,
        body: object = b"",
        *,
        content_type: str = "application/json",
        **headers: str,
    ) -> "Reply":
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        authorization = {"Authorization": f"Bearer {self.secret}"} if self.secret else {}
        return self._client.generic(
            method, path, raw, content_type, headers={**authorization, **headers}
        )

    def get(self, path: str, **headers: str) -> "Reply":
        return self.send("GET", path, **headers)

    def post(self, path: str, body: object = b"", **headers: str) -> "Reply":
        return self.send("POST", path, body, **headers)

    def put(self, path: str, body: object, **headers: str) -> "Reply":
        return self.send("PUT", path, body, **headers)

    def patch(self, path: str, body: object, **headers: str) -> "Reply":
        return self.send("PATCH", path, body, **headers)

    def delete(self, path: str, **headers: str) -> "Reply":
        return self.send("DELETE", path, **headers)


class Worker(Caller):
    def register(self, **changes: Any) -> "Reply":
        body = {**REGISTRATION, "token": self.secret, **changes}
        return self.post("/api/node/register", body)

    def joined(self, **changes: Any) -> str:
        """Register and remember the id, as a worker does."""
        reply = self.register(**changes)
        assert reply.status_code == 201, reply.content
        return str(read(reply)["id"])


def operator(*permissions: str) -> Caller:
    """A script whose user may do just this."""
    user = User.objects.create_user(f"user-{User.objects.count()}")
    codenames = [permission.removeprefix("nodes.") for permission in permissions]
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    _, secret = tokens.issue(user, name="tests", now=NOW)
    return Caller(secret)


def read(reply: "Reply") -> Any:
    return json.loads(reply.content)
