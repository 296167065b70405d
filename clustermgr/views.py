"""Pages of the project itself."""

from typing import Any

from django.contrib.auth.views import redirect_to_login
from django.http import Http404, HttpResponse
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularSwaggerView
from prometheus_client import CONTENT_TYPE_LATEST
from rest_framework.exceptions import NotAuthenticated
from rest_framework.request import Request
from rest_framework.views import APIView

from clustermgr import metrics


class MetricsView(APIView):
    """Prometheus' figures, for whoever has an API token: they tell a lot about a fleet."""

    @extend_schema(exclude=True)
    def get(self, request: Request) -> HttpResponse:
        return HttpResponse(metrics.exposition(), content_type=CONTENT_TYPE_LATEST)


class NothingHere(APIView):
    """A path of the API that does not exist, told in JSON: machines cannot read Django's page."""

    authentication_classes = ()
    permission_classes = ()

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        raise Http404


class DocsView(SpectacularSwaggerView):
    """The API to click through. A page for people: who is not known may log in."""

    def handle_exception(self, exc: Exception) -> Any:
        if isinstance(exc, NotAuthenticated):
            return redirect_to_login(self.request.get_full_path())
        return super().handle_exception(exc)
