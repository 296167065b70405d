"""Pages of the project itself."""

from django.http import HttpResponse
from drf_spectacular.utils import extend_schema
from prometheus_client import CONTENT_TYPE_LATEST
from rest_framework.request import Request
from rest_framework.views import APIView

from clustermgr import metrics


class MetricsView(APIView):
    """Prometheus' figures, for whoever has an API token: they tell a lot about a fleet."""

    @extend_schema(exclude=True)
    def get(self, request: Request) -> HttpResponse:
        return HttpResponse(metrics.exposition(), content_type=CONTENT_TYPE_LATEST)
