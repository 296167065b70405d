"""How the admin looks and what its sidebar offers."""

from typing import Any

from django.http import HttpRequest
from django.urls import reverse_lazy


def unfold_settings() -> dict[str, Any]:
    return {
        "SITE_TITLE": "clustermgr",
        "SITE_HEADER": "clustermgr",
        "SITE_SUBHEADER": "Inference fleet",
        "SITE_SYMBOL": "hub",
        "SHOW_HISTORY": True,
        "SHOW_VIEW_ON_SITE": False,
        "DASHBOARD_CALLBACK": "clustermgr.dashboard.add_to_index",
        "STYLES": ["/static/clustermgr/console.css"],
        "SIDEBAR": {
            "show_search": False,
            "show_all_applications": False,
            "navigation": "clustermgr.navigation.sidebar",
        },
    }


def sidebar(request: HttpRequest) -> list[dict[str, Any]]:
    """The groups of the sidebar; built per request so that badges appear only when wanted."""
    return [
        {
            "title": "Fleet",
            "items": [
                _item("Overview", "dashboard", "admin:index"),
            ],
        },
        {
            "title": "Access",
            "separator": True,
            "items": [
                _item("Users", "person", "admin:auth_user_changelist"),
                _item("Groups", "group", "admin:auth_group_changelist"),
                _item("API tokens", "key", "admin:clustermgr_apitoken_changelist"),
            ],
        },
    ]


def _item(title: str, icon: str, url: str) -> dict[str, Any]:
    return {"title": title, "icon": icon, "link": reverse_lazy(url)}
