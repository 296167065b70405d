from django.contrib import admin
from django.urls import include, path, re_path
from django.views.generic import RedirectView
from drf_spectacular.views import SpectacularAPIView

from backendops.api import urls as operations
from clustermgr.health import healthz, readyz
from clustermgr.views import DocsView, MetricsView, NothingHere

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index")),
    path("admin", RedirectView.as_view(pattern_name="admin:index")),
    path("admin/", admin.site.urls),
    path("healthz", healthz),
    path("readyz", readyz),
    path("metrics", MetricsView.as_view()),
    path("api/", include("scheduling.api.urls")),  # before nodes: see there
    path("api/", include("nodes.api.urls")),
    path("api/", include(operations.api)),
    path("", include(operations.without_api)),
    path("api/schema", SpectacularAPIView.as_view(), name="schema"),
    path("api/docs", DocsView.as_view(url_name="schema"), name="docs"),
    re_path("^api/", NothingHere.as_view()),
]
