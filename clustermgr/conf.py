"""Every knob of the cluster, typed and frozen, read once from the environment."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

from django.core.exceptions import ImproperlyConfigured

TRUE = frozenset({"1", "true", "yes", "on"})
FALSE = frozenset({"0", "false", "no", "off", ""})
UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
GO_DURATION = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s)")


@dataclass(frozen=True, slots=True, kw_only=True)
class GallerySource:
    """A list of backends that can be installed, and where it is."""

    name: str
    url: str  # http(s)://, file:// or a path


def secret() -> Any:
    """A text field that never shows up in a repr, hence in no log and no traceback."""
    return field(default="", repr=False)


def localai(name: str) -> dict[str, str]:
    """LocalAI's own variable sets the field as well."""
    return {"localai": name}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """`CLUSTER_<NAME>` in the environment; durations in seconds or Go's way (`1m30s`); secrets
    also by `_FILE`.

    No `from __future__ import annotations` here: the parser is chosen by the field's real type.
    """

    # Where the parts are
    nats_url: str = field(default="nats://127.0.0.1:4222", repr=False)  # may carry a password
    worker_nats_url: str = secret()  # what "Add a worker" shows; empty: ours without its password
    nats_credentials: str = ""  # path of a .creds file (user JWT and seed)
    nats_ca: str = ""  # PEM paths; any of them turns TLS on
    nats_cert: str = ""
    nats_key: str = ""

    # Who may use the bus. The account's seed mints a credential for every node; the operator's
    # (or one of its signing keys') and the system user's credentials revoke them.
    nats_account_seed: str = secret()
    nats_operator_seed: str = secret()
    nats_system_credentials: str = ""  # path of a .creds file
    nats_worker_jwt_ttl: timedelta = timedelta(hours=24)

    # Who may come in
    registration_token: str = secret()
    auto_approve_nodes: bool = False
    # Secrets of join tokens, comma-separated: lets us read the logs of who joined with them
    worker_http_tokens: str = secret()

    # How people reach us: False only where no TLS stands in front (a laptop, a test)
    https: bool = True

    # What we say
    log_format: str = "json"
    log_level: str = "INFO"

    # What ticks
    pulse_every: timedelta = timedelta(seconds=10)
    sweep_every: timedelta = timedelta(seconds=15)
    drain_check_every: timedelta = timedelta(seconds=5)
    tidy_every: timedelta = timedelta(seconds=30)
    reconcile_every: timedelta = timedelta(seconds=30)

    galleries_every: timedelta = timedelta(minutes=1)  # looks which of them are due

    # What can be installed: [{"name": "...", "url": "..."}]; none: only what workers know
    backend_galleries: tuple[GallerySource, ...] = ()
    check_upgrades_every: timedelta = timedelta(hours=6)  # each; one that failed sooner
    gallery_timeout: timedelta = timedelta(seconds=30)
    # LocalAI deletes while the caller waits; we wait this long and then answer with the job
    answer_within: timedelta = timedelta(seconds=2)

    # Who counts as gone: silent for longer than this
    heartbeat_stale_after: timedelta = timedelta(seconds=60)
    # ... unless this share of all nodes, and this many, are silent together: then it is us
    sweep_hold_fraction: float = 0.55
    sweep_hold_minimum: int = 3
    # ... and never faster than this
    offline_per_second: float = 0.1
    offline_burst: int = 3
    # Who comes back too often gets nothing new for a while
    flap_limit: int = 3
    flap_window: timedelta = timedelta(minutes=10)
    quarantine_for: timedelta = timedelta(minutes=10)

    # Models: a replica unused for so long may go; a rule that cannot be kept for so long is
    # told, and tried again only after a pause or when something changes
    idle_after: timedelta = timedelta(minutes=5)
    starved_after: timedelta = timedelta(seconds=90)
    starved_pause: timedelta = timedelta(minutes=5)

    # Routing: requests go to whoever has seen the beginning of their prompt, unless much busier.
    # Off: no prompt is remembered, whatever a rule says. `route_policy` and the three below it
    # are for models whose rule says nothing else.
    prefix_cache: bool = field(default=True, metadata=localai("LOCALAI_DISTRIBUTED_PREFIX_CACHE"))
    prefix_cache_ttl: timedelta = field(
        default=timedelta(minutes=5), metadata=localai("LOCALAI_DISTRIBUTED_PREFIX_CACHE_TTL")
    )
    prefix_half_life: timedelta = timedelta(minutes=2)
    prefix_entries: int = 1_000_000  # windows of 256 bytes, of about 100 to 260 bytes each
    route_policy: str = "prefix_cache"
    balance_abs_threshold: int = 2
    balance_rel_threshold: float = 1.5
    min_prefix_match: float = 0.3
    # So many requests that had to go elsewhere within so long ask for one more replica
    prefix_pressure_window: timedelta = timedelta(minutes=1)
    prefix_pressure_threshold: int = 1

    # How long a worker may take to answer; then it counts as silent, not as failed
    install_timeout: timedelta = timedelta(minutes=15)
    upgrade_timeout: timedelta = timedelta(minutes=15)
    delete_timeout: timedelta = timedelta(minutes=2)
    list_timeout: timedelta = timedelta(seconds=30)
    running_timeout: timedelta = timedelta(seconds=10)
    unload_timeout: timedelta = timedelta(seconds=30)
    # A worker frees for 5 s and waits 15 s from SIGTERM to SIGKILL before it answers this one
    stop_timeout: timedelta = timedelta(seconds=25)
    model_delete_timeout: timedelta = timedelta(seconds=30)
    # ... and whoever is quiet for this long while at it is asked whether he is still there
    probe_after: timedelta = timedelta(seconds=5)

    # Orders: how many at once, and how often what is due or in doubt is looked at
    ops_per_node: int = 2
    ops_at_once: int = 150  # of the 200 threads: questions and revocations need some too
    op_lease: timedelta = timedelta(seconds=45)
    ops_every: timedelta = timedelta(seconds=30)
    ops_reap_every: timedelta = timedelta(seconds=10)
    ops_check_every: timedelta = timedelta(seconds=20)
    inventory_every: timedelta = timedelta(minutes=5)
    # Loads: how many at once, how long one may take (its size decides), and what is looked after
    loads_at_once: int = 40
    load_lease: timedelta = timedelta(seconds=45)
    load_within: timedelta = timedelta(minutes=5)
    load_within_per_gib: timedelta = timedelta(seconds=20)
    load_within_at_most: timedelta = timedelta(hours=6)
    jobs_reap_every: timedelta = timedelta(seconds=10)
    # What workers really run: how often they are asked, and how long an unknown process may stay
    observe_every: timedelta = timedelta(seconds=10)
    stray_grace: timedelta = timedelta(minutes=2)
    # Requests: how long one may hold a replica without a word, how long one waits for a load,
    # and how often the leases of callers that never came back are ended
    route_lease: timedelta = timedelta(minutes=5)
    route_wait: timedelta = timedelta(seconds=60)
    route_sweep_every: timedelta = timedelta(seconds=5)
    # The record of operations: what ended and was dismissed is kept for this long
    keep_history_for: timedelta = timedelta(days=365)
    history_tidy_every: timedelta = timedelta(hours=1)
    # ... and so long what was loaded and decided, unless it still matters; of each model the last
    # so many stay, however old (a decision names every node: they are large)
    keep_loads_for: timedelta = timedelta(days=30)
    keep_loads_per_model: int = 20

    # Scheduling rules that every start restores: a JSON list, and the path of a YAML list
    model_scheduling: str = ""
    model_scheduling_config: str = ""

    @property
    def longest_answer(self) -> timedelta:
        """Whoever was asked anything has answered by then, or nobody waits for it any more."""
        waits: list[timedelta] = [
            getattr(self, knob.name) for knob in fields(self) if knob.name.endswith("_timeout")
        ]
        return max(waits)

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Self:
        """Read every field; a value that does not parse stops the process with its name."""
        values: dict[str, Any] = {}
        for knob in fields(cls):
            ours, theirs = f"CLUSTER_{knob.name.upper()}", knob.metadata.get("localai")
            for name in filter(None, (theirs, ours)):  # ours has the last word
                text = env_text(env, name)
                if text is not None:
                    values[knob.name] = _parse(name, text, knob.type)
        return cls(**values)


def env_text(env: Mapping[str, str], name: str) -> str | None:
    """The value of `name`, or the content of the file that `name_FILE` points at."""
    if name in env:
        return env[name]
    path = env.get(f"{name}_FILE")
    if path is None:
        return None
    try:
        return Path(path).read_text().strip()
    except OSError as error:
        raise ImproperlyConfigured(f"{name}_FILE: cannot read {path}: {error.strerror}") from error


def parse_bool(name: str, text: str) -> bool:
    """Accept the usual words and refuse everything else: a typo must not mean no."""
    word = text.strip().lower()
    if word in TRUE:
        return True
    if word in FALSE:
        return False
    raise ImproperlyConfigured(f"{name} must be true or false, not {text!r}")


def _parse(name: str, text: str, kind: Any) -> Any:
    if kind is bool:
        return parse_bool(name, text)
    if kind is str:
        return text
    if kind == tuple[GallerySource, ...]:
        return _galleries(name, text)
    try:
        if kind is timedelta:
            return _seconds(text)
        return _positive(kind(text))
    except (ValueError, OverflowError) as error:
        raise ImproperlyConfigured(f"{name} must be a positive number, not {text!r}") from error


def _galleries(name: str, text: str) -> tuple[GallerySource, ...]:
    """LocalAI's way to name galleries; a wrong one is told at the start, not at the first check."""
    shape = f'{name} must be a JSON list like [{{"name": "main", "url": "https://..."}}]'
    try:
        given = json.loads(text or "[]")
        sources = tuple(GallerySource(name=item["name"], url=item["url"]) for item in given)
    except (ValueError, TypeError, KeyError) as error:
        raise ImproperlyConfigured(shape) from error
    names = [source.name for source in sources]
    words = [word for source in sources for word in (source.name, source.url)]
    if not all(isinstance(word, str) and word for word in words):
        raise ImproperlyConfigured(shape)
    if len(set(names)) < len(names) or any("@" in word for word in names):
        raise ImproperlyConfigured(f"{name}: each gallery needs a name of its own, without an @")
    return sources


def _seconds(text: str) -> timedelta:
    parts = GO_DURATION.findall(text)
    if parts and "".join(map("".join, parts)) == text:
        seconds = sum(float(number) * UNITS[unit] for number, unit in parts)
    else:
        seconds = float(text)
    return timedelta(seconds=_positive(seconds))


def _positive(number: float) -> float:
    # Also turns "nan" and "inf" away: compared with them every rule is off
    if not 0 < number < float("inf"):
        raise ValueError(number)
    return number
