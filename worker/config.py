"""Every knob of the worker: LocalAI's names, so that its unit files work, and some of ours.

A field is the flag in kebab-case, and `LOCALAI_<NAME>` or `WORKER_<NAME>` in the environment;
the flag wins. Secrets also by `_FILE`.
"""

import argparse
import os
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import timedelta
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from worker.machine import Gallery
from worker.sizes import parse_size
from worker.wire.reading import BadMessage
from worker.wire.requests import galleries

TRUE, FALSE = ("1", "true", "yes", "on", "t"), ("0", "false", "no", "off", "f", "")
MAX_PORT = 65_535
DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
LABEL = re.compile(r"[A-Za-z0-9._/-]{1,128}")


class BadConfig(Exception):
    """A sentence for the person who wrote the unit file."""


def flag(text: str) -> bool:
    word = text.strip().lower()
    if word not in TRUE + FALSE:
        raise ValueError("must be true or false")
    return word in TRUE


def duration(text: str) -> timedelta:
    """Go's way (`10s`, `1m30s`), or plain seconds."""
    parts = DURATION.findall(text)
    if parts and "".join(number + unit for number, unit in parts) == text:
        seconds = sum(float(number) * UNITS[unit] for number, unit in parts)
    else:
        try:
            seconds = float(text)
        except ValueError:
            raise ValueError("must be a duration such as 10s") from None
    if not 0 < seconds < 86_400:
        raise ValueError("must be longer than nothing and shorter than a day")
    return timedelta(seconds=seconds)


def endpoint(text: str) -> str:
    """`host:port`."""
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdigit() and 0 < int(port) <= MAX_PORT):
        raise ValueError("must look like host:50051")
    return text


def labels(text: str) -> Mapping[str, str]:
    """`k=v,k=v`."""
    pairs = [pair.partition("=") for pair in text.split(",") if pair.strip()]
    found = {key.strip(): value.strip() for key, sign, value in pairs if sign}
    if len(found) < len(pairs) or not all(map(LABEL.fullmatch, found)):
        raise ValueError("must look like key=value,other=value")
    return found


def whole(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError("must be a whole number")
    return int(text)


def positive(text: str) -> int:
    if (number := whole(text)) < 1:
        raise ValueError("must be at least 1")
    return number


def web_address(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must look like https://manager.example.com")
    return text.rstrip("/")


def nats_address(text: str) -> str:
    for url in text.split(","):
        parts = urlsplit(url.strip())
        if parts.scheme not in ("nats", "tls") or not parts.hostname:
            raise ValueError("must look like nats://host:4222 or tls://host:4222")
    return text


def gallery_list(text: str) -> tuple[Gallery, ...]:
    try:
        return tuple(galleries(text))
    except BadMessage as error:
        raise ValueError(f"must be a JSON list of galleries ({error})") from error


def one_of(*words: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text.lower() not in words:
            raise ValueError(f"must be {' or '.join(words)}")
        return text.lower()

    return read


def knob(
    default: Any,
    read: Callable[[str], Any] = str,
    *,
    ours: bool = False,
    also: str = "",
    secret: bool = False,
    says: str = "",
) -> Any:
    """One setting: how its text is read, and by which names it comes."""
    told = {"read": read, "ours": ours, "also": also, "secret": secret, "says": says}
    return field(default=default, repr=not secret, metadata=told)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    register_to: str = knob("", web_address, says="the manager's address")
    nats_url: str = knob("", nats_address, secret=True, says="where commands come from")
    node_name: str = knob("", says="what the node is known by; the host's name")
    registration_token: str = knob("", secret=True, says="lets us in")
    registration_require_auth: bool = knob(False, flag, says="refuse to run without a token")
    distributed_require_auth: bool = knob(False, flag, says="both of the require-auth")

    addr: str = knob("", endpoint, says="host:port that others reach us at")
    serve_addr: str = knob("0.0.0.0:50051", endpoint, says="base port, without addr")
    grpc_max_port: int = knob(0, whole, says="top of the port range; 0: 65535")
    advertise_addr: str = knob("", endpoint, says="what we tell instead of addr")
    http_addr: str = knob("", endpoint, says="where probes and logs are served; base port - 1")
    advertise_http_addr: str = knob("", endpoint, says="what we tell instead of http-addr")

    heartbeat_interval: timedelta = knob(timedelta(seconds=10), duration)
    node_labels: Mapping[str, str] = knob(None, labels, says="k=v,k=v")
    max_replicas_per_model: int = knob(1, positive)
    vram_budget: str = knob("", says="80%%, 0.8, 12GB or bytes")

    nats_jwt: str = knob("", secret=True)
    nats_user_seed: str = knob("", secret=True)
    nats_require_auth: bool = knob(False, flag, says="wait until the manager gives credentials")
    nats_tls_ca: str = knob("", says="PEM path; any of the three turns TLS on")
    nats_tls_cert: str = knob("")
    nats_tls_key: str = knob("")

    backends_path: Path | None = knob(None, Path, also="BACKENDS_PATH")
    backends_system_path: Path = knob(Path("/var/lib/local-ai/backends"), Path)
    models_path: Path | None = knob(None, Path, also="MODELS_PATH")
    backend_galleries: tuple[Gallery, ...] = knob((), gallery_list, also="BACKEND_GALLERIES")

    state_dir: Path = knob(
        Path(".worker"), Path, ours=True, says="backends, models and state go here"
    )
    download_rate: int = knob(0, parse_size, ours=True, says="bytes per second; 0: no limit")
    pretend_vram: int = knob(0, parse_size, ours=True, says="for demos: claim this much VRAM")
    log_format: str = knob("text", one_of("text", "json"), ours=True)
    log_level: str = knob("info", one_of("debug", "info", "warning", "error"), ours=True)

    def __post_init__(self) -> None:
        defaults = {
            "node_name": platform.node() or f"node-{os.getpid()}",
            "node_labels": {},
        }
        for name, value in defaults.items():
            if not getattr(self, name):
                object.__setattr__(self, name, value)

    @property
    def backends(self) -> Path:
        return self.backends_path or self.state_dir / "backends"

    @property
    def models(self) -> Path:
        return self.models_path or self.state_dir / "models"

    @property
    def base_port(self) -> int:
        return int((self.addr or self.serve_addr).rpartition(":")[2])

    @property
    def top_port(self) -> int:
        return self.grpc_max_port if self.base_port <= self.grpc_max_port <= MAX_PORT else MAX_PORT

    @property
    def advertised(self) -> str:
        return self.advertise_addr or self.addr or f"{platform.node()}:{self.base_port}"

    @property
    def advertised_host(self) -> str:
        return self.advertised.rpartition(":")[0]

    @property
    def http_bind(self) -> tuple[str, int]:
        host, _, port = (self.http_addr or f"0.0.0.0:{self.base_port - 1}").rpartition(":")
        return host, int(port)

    @property
    def http_advertised(self) -> str:
        return self.advertise_http_addr or f"{self.advertised_host}:{self.http_bind[1]}"

    @classmethod
    def load(cls, arguments: Sequence[str], env: Mapping[str, str]) -> Self:
        """Read flags and environment; BadConfig names the first knob that is wrong."""
        given = vars(_parser(fields(cls)).parse_args(arguments))
        values = {}
        for one in fields(cls):
            name, text = _text(one, given[one.name], env)
            if text is not None:
                values[one.name] = _read(name, text, one.metadata["read"])
        config = cls(**values)
        _check(config)
        return config


def _parser(knobs: Sequence[Any]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m worker", description="A node's agent.")
    for one in knobs:
        name, says = f"--{one.name.replace('_', '-')}", one.metadata["says"]
        if one.metadata["read"] is flag:
            parser.add_argument(name, nargs="?", const="true", help=says)
        else:
            parser.add_argument(name, metavar="...", help=says)
    return parser


def _text(one: Any, by_flag: str | None, env: Mapping[str, str]) -> tuple[str, str | None]:
    """The knob's text, and the name that it came by: flag, variable, or a variable's file."""
    if by_flag is not None:
        return f"--{one.name.replace('_', '-')}", by_flag
    variable = f"{'WORKER' if one.metadata['ours'] else 'LOCALAI'}_{one.name.upper()}"
    for name in (variable, one.metadata["also"]):
        if env.get(name):
            return name, env[name]
    path = env.get(f"{variable}_FILE") if one.metadata["secret"] else None
    if not path:
        return variable, None
    try:
        return variable, Path(path).read_text().strip()
    except OSError as error:
        raise BadConfig(f"{variable}_FILE: cannot read {path}: {error.strerror}") from error


def _read(name: str, text: str, read: Callable[[str], Any]) -> Any:
    try:
        return read(text)
    except ValueError as error:
        raise BadConfig(f"{name} {error}.") from error


def _check(config: Config) -> None:
    if not config.register_to:
        raise BadConfig("LOCALAI_REGISTER_TO is required: the manager's address.")
    if not config.nats_url:
        raise BadConfig("LOCALAI_NATS_URL is required: where commands come from.")
    strict = config.registration_require_auth or config.distributed_require_auth
    if strict and not config.registration_token:
        raise BadConfig("LOCALAI_REGISTRATION_TOKEN is required by the require-auth setting.")
    if bool(config.nats_jwt) != bool(config.nats_user_seed):
        raise BadConfig("LOCALAI_NATS_JWT and LOCALAI_NATS_USER_SEED need each other.")
    if bool(config.nats_tls_cert) != bool(config.nats_tls_key):
        raise BadConfig("LOCALAI_NATS_TLS_CERT and LOCALAI_NATS_TLS_KEY need each other.")
    for path in (config.nats_tls_ca, config.nats_tls_cert, config.nats_tls_key):
        if path and not Path(path).is_file():
            raise BadConfig(f"The TLS file {path} does not exist.")
