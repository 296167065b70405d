"""`Authorization: Bearer <token>` for scripts; browsers use their session, with CSRF."""

from typing import Any

from django.utils import timezone
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from clustermgr import tokens
from clustermgr.lib.errors import Unauthenticated
from clustermgr.models import ApiToken


class ApiTokenAuthentication(BaseAuthentication):
    def authenticate(self, request: Request) -> tuple[Any, ApiToken] | None:
        scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not secret:
            return None
        try:
            token = tokens.authenticate(secret.strip(), now=timezone.now())
        except Unauthenticated as refusal:
            raise AuthenticationFailed(str(refusal)) from refusal
        return token.user, token

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


class ApiTokenScheme(OpenApiAuthenticationExtension):
    target_class = ApiTokenAuthentication
    name = "apiToken"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer"}
