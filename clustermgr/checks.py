"""Settings that contradict each other are told at start-up, not at three in the morning."""

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, register


@register()
def database_is_postgresql(**_: Any) -> list[CheckMessage]:
    if settings.DATABASES["default"]["ENGINE"] == "django.db.backends.postgresql":
        return []
    return [
        Error(
            "Only PostgreSQL is supported: locks, partial constraints and the pick rely on it.",
            hint="Set DATABASE_URL to postgresql://user:password@host/name.",
            id="clustermgr.E001",
        )
    ]


@register()
def log_format_is_known(**_: Any) -> list[CheckMessage]:
    if settings.CLUSTER.log_format in {"json", "text"}:
        return []
    return [
        Error(
            f"CLUSTER_LOG_FORMAT is {settings.CLUSTER.log_format!r}.",
            hint="Use json or text.",
            id="clustermgr.E002",
        )
    ]
