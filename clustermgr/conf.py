"""Every knob of the cluster, typed and frozen, read once from the environment."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

from django.core.exceptions import ImproperlyConfigured

TRUE = frozenset({"1", "true", "yes", "on"})
FALSE = frozenset({"0", "false", "no", "off", ""})


def secret() -> Any:
    """A text field that never shows up in a repr, hence in no log and no traceback."""
    return field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """`CLUSTER_<NAME>` in the environment; durations in seconds; secrets also by `_FILE`.

    No `from __future__ import annotations` here: the parser is chosen by the field's real type.
    """

    # Where the parts are
    nats_url: str = field(default="nats://127.0.0.1:4222", repr=False)  # may carry a password
    worker_nats_url: str = secret()  # what "Add a worker" tells workers; empty: host and port only
    nats_credentials: str = ""  # path of a .creds file (user JWT and seed)
    nats_ca: str = ""  # PEM paths; any of them turns TLS on
    nats_cert: str = ""
    nats_key: str = ""

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

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Self:
        """Read every field; a value that does not parse stops the process with its name."""
        values: dict[str, Any] = {}
        for knob in fields(cls):
            name = f"CLUSTER_{knob.name.upper()}"
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
    try:
        if kind is timedelta:
            return _seconds(text)
        return _positive(kind(text))
    except (ValueError, OverflowError) as error:
        raise ImproperlyConfigured(f"{name} must be a positive number, not {text!r}") from error


def _seconds(text: str) -> timedelta:
    return timedelta(seconds=_positive(float(text)))


def _positive(number: float) -> float:
    # Also turns "nan" and "inf" away: compared with them every rule is off
    if not 0 < number < float("inf"):
        raise ValueError(number)
    return number
