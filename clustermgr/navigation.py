"""How the admin looks; settings import it, so it knows no models (see sidebar.py)."""

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest
from django.templatetags.static import static as static_url

# Calm; green, orange and red are left to mean something.
BLUE = {
    "50": "#eff6ff",
    "100": "#dbeafe",
    "200": "#bfdbfe",
    "300": "#93c5fd",
    "400": "#60a5fa",
    "500": "#3b82f6",
    "600": "#2563eb",
    "700": "#1d4ed8",
    "800": "#1e40af",
    "900": "#1e3a8a",
    "950": "#172554",
}


def static(path: str) -> Callable[[HttpRequest], str]:
    """Resolved per request: settings are not there yet while they are being made."""
    return lambda request: static_url(path)


def unfold_settings() -> dict[str, Any]:
    return {
        "SITE_TITLE": "clustermgr",
        "SITE_HEADER": "clustermgr",
        "SITE_SUBHEADER": "Inference fleet",
        "SITE_SYMBOL": "hub",
        "SHOW_HISTORY": True,
        "SHOW_VIEW_ON_SITE": False,
        "DASHBOARD_CALLBACK": "clustermgr.dashboard.add_to_index",
        "SITE_URL": None,
        "SITE_FAVICONS": [
            {"rel": "icon", "type": "image/svg+xml", "href": static("clustermgr/icon.svg")}
        ],
        "STYLES": [static("clustermgr/console.css")],
        "SCRIPTS": [static("clustermgr/console.js")],
        "COLORS": {"primary": BLUE},
        "SIDEBAR": {
            "show_search": False,
            "show_all_applications": False,
            "navigation": "clustermgr.sidebar.sidebar",
        },
    }
