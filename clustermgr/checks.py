"""Settings that contradict each other are told at start-up, not at three in the morning."""

from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.checks import CheckMessage, Error, Info, Tags, register

from clustermgr.lib.natsauth import BadSeed, Key, Kind
from scheduling.states import RoutePolicy

# Fixed on the workers' side (LOCALAI_HEARTBEAT_INTERVAL); we cannot ask for another pace.
WORKER_HEARTBEAT = timedelta(seconds=10)
# The words of a rule; "" means this very setting
ROUTE_POLICIES = tuple(filter(None, RoutePolicy.values))


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


@register()
def silence_is_longer_than_a_pause(**_: Any) -> list[CheckMessage]:
    cluster = settings.CLUSTER
    floor = max(2 * WORKER_HEARTBEAT, cluster.sweep_every)
    if cluster.heartbeat_stale_after > floor and cluster.sweep_hold_fraction <= 1:
        return []
    return [
        Error(
            "The sweep would declare healthy nodes offline: one lost heartbeat or one lost tick "
            "is enough, or its brake can never engage.",
            hint=f"CLUSTER_HEARTBEAT_STALE_AFTER must be above {floor.total_seconds():.0f} "
            "seconds (two heartbeats, and CLUSTER_SWEEP_EVERY), and CLUSTER_SWEEP_HOLD_FRACTION "
            "at most 1.",
            id="clustermgr.E003",
        )
    ]


@register()
def seeds_are_seeds(**_: Any) -> list[CheckMessage]:
    cluster = settings.CLUSTER
    wanted = {
        "CLUSTER_NATS_ACCOUNT_SEED": (cluster.nats_account_seed, Kind.ACCOUNT),
        "CLUSTER_NATS_OPERATOR_SEED": (cluster.nats_operator_seed, Kind.OPERATOR),
    }
    return [
        Error(
            f"{name} is not the seed of an {kind.name.lower()}.",
            hint=f"It begins with S{kind.name[0]}; `manage.py nats_auth init` makes one.",
            id="clustermgr.E004",
        )
        for name, (seed, kind) in wanted.items()
        if seed and not _is_seed(seed, kind)
    ]


@register(Tags.security, deploy=True)
def bus_is_locked(**_: Any) -> list[CheckMessage]:
    cluster = settings.CLUSTER
    if not cluster.nats_account_seed:
        return [
            Info(
                "Nodes get no credentials of their own: whoever reaches NATS can hear and command"
                " all of them, unless NATS itself keeps them apart.",
                hint="`manage.py nats_auth init` locks the bus down.",
                id="clustermgr.I001",
            )
        ]
    if cluster.nats_operator_seed and cluster.nats_system_credentials:
        return []
    return [
        Info(
            "The credential of a retired node stays good until it expires.",
            hint="Set CLUSTER_NATS_OPERATOR_SEED and CLUSTER_NATS_SYSTEM_CREDENTIALS.",
            id="clustermgr.I002",
        )
    ]


def _is_seed(text: str, kind: Kind) -> bool:
    try:
        Key.from_seed(text, kind)
    except BadSeed:
        return False
    return True


@register()
def galleries_can_be_reached(**_: Any) -> list[CheckMessage]:
    return [
        Error(
            f"The gallery {source.name} is at {source.url!r}, which we cannot read.",
            hint="CLUSTER_BACKEND_GALLERIES takes http(s)://, file:// and absolute paths.",
            id="clustermgr.E005",
        )
        for source in settings.CLUSTER.backend_galleries
        if urlsplit(source.url).scheme not in {"http", "https", "file"}
        and not source.url.startswith("/")
    ]


@register()
def routing_makes_sense(**_: Any) -> list[CheckMessage]:
    cluster = settings.CLUSTER
    wrong = {
        "CLUSTER_ROUTE_POLICY": (
            cluster.route_policy not in ROUTE_POLICIES,
            f"one of {', '.join(ROUTE_POLICIES)}",
        ),
        "CLUSTER_BALANCE_REL_THRESHOLD": (cluster.balance_rel_threshold < 1, "at least 1"),
        "CLUSTER_MIN_PREFIX_MATCH": (cluster.min_prefix_match > 1, "at most 1"),
    }
    return [
        Error(f"{name} makes no sense.", hint=f"It is {fitting}.", id="clustermgr.E006")
        for name, (broken, fitting) in wrong.items()
        if broken
    ]
