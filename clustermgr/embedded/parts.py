"""The parts of a running cluster manager: how each is started and when it counts as ready."""

import json
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from clustermgr.embedded.nats import Nats
from clustermgr.embedded.postgres import Postgres
from clustermgr.embedded.state import Secrets
from clustermgr.embedded.supervisor import Part

ROOT = Path(__file__).resolve().parent.parent.parent
CELERY = (sys.executable, "-m", "celery", "--app", "clustermgr.celery", "--quiet")
UVICORN = (sys.executable, "-m", "uvicorn", "clustermgr.asgi:application", "--no-access-log")
# Gossip, mingle and heartbeats are conversations between workers that nobody here listens to.
WORKER = ("worker", "--without-gossip", "--without-mingle", "--without-heartbeat")
# What `manage.py prepare` says when the stored password still opens the door
PASSWORD_WORKS = "the admin password works"


class Place(Protocol):
    """Where the web part listens."""

    @property
    def http_host(self) -> str: ...
    @property
    def http_port(self) -> int: ...


def manage(*arguments: str) -> list[str]:
    return [sys.executable, str(ROOT / "manage.py"), *arguments]


def admin_user(env: Mapping[str, str]) -> str:
    return env.get("CLUSTER_ADMIN_USER") or "admin"


def address(host: str, port: int) -> str:
    """The URL to print: a wildcard is not a place to go."""
    return f"http://{'127.0.0.1' if host in ('0.0.0.0', '::') else host}:{port}"


def environment(
    base: Mapping[str, str],
    *,
    keys: Secrets,
    data_dir: Path,
    urls: Mapping[str, str],
    host: str,
) -> dict[str, str]:
    """What every part of ours gets to know; nothing of it is on a command line."""
    metrics = data_dir / "metrics"
    metrics.mkdir(exist_ok=True)
    for stale in metrics.glob("*.db"):  # figures of processes that are gone
        stale.unlink()
    defaults = {
        # No TLS stands in front of a laptop: Secure cookies would never come back.
        "CLUSTER_HTTPS": "false",
        "CLUSTER_LOG_FORMAT": "text",
        # Whoever tries things out restarts often: that is no machine in trouble
        "CLUSTER_FLAP_LIMIT": "10",
        "DJANGO_ALLOWED_HOSTS": f"127.0.0.1,localhost,{host}" if host != "0.0.0.0" else "*",
    }
    return {
        **defaults,
        **base,
        **urls,
        "DJANGO_SECRET_KEY": keys.secret_key,
        "DJANGO_SETTINGS_MODULE": "clustermgr.settings",
        "CLUSTER_REGISTRATION_TOKEN": keys.registration_token,
        "CLUSTER_ADMIN_USER": admin_user(base),
        "CLUSTER_ADMIN_PASSWORD": keys.admin_password,
        "CLUSTER_API_TOKEN": keys.api_token,
        "CLUSTER_DATA_DIR": str(data_dir),
        "PROMETHEUS_MULTIPROC_DIR": str(metrics),
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": str(ROOT),
    }


def postgres(server: Postgres) -> Part:
    return Part(
        name="postgres",
        command=server.command(),
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
        cwd=server.home,
        account=server.account,
        ready=server.ready,
        stop_signal=server.stop_signal,
        death_signal=signal.SIGINT,
        grace=20,
        hush=("the database system is starting up",),  # our own question whether it is ready
    )


def nats(server: Nats) -> Part:
    return Part(
        name="nats",
        command=server.command(),
        env={"PATH": "/usr/bin:/bin"},
        cwd=server.home,
        ready=server.ready,
        hush=("[INF]",),
    )


def all_parts(env: Mapping[str, str], place: Place) -> list[Part]:
    """Web, the two kinds of Celery process, one beat."""
    where = address(place.http_host, place.http_port)
    listen = ("--host", place.http_host, "--port", str(place.http_port))
    web = (*UVICORN, *listen, "--log-level", "warning", "--timeout-graceful-shutdown", "4")
    ticks = (*CELERY, *WORKER, "-Q", "ticks", "-P", "prefork", "-c", "2", "-n", "ticks@%h")
    nodeops = (*CELERY, *WORKER, "-Q", "nodeops", "-P", "threads", "-c", "200", "-n", "nodeops@%h")
    beat = (*CELERY, "beat", "--pidfile=")
    answers, ticked = _answers(f"{where}/healthz"), _beats(f"{where}/readyz")
    return [
        _ours("web", web, env, answers),
        _ours("nodeops", nodeops, env, answers),
        _ours("ticks", ticks, env, ticked),
        _ours("beat", beat, env, ticked),
    ]


def _ours(
    name: str, command: tuple[str, ...], env: Mapping[str, str], ready: Callable[[], bool]
) -> Part:
    """A Python process of this project; CLUSTER_PART names it in the metrics."""
    return Part(
        name=name,
        command=command,
        env={**env, "CLUSTER_PART": name},
        cwd=ROOT,
        ready=ready,
        hush=("Warm shutdown (MainProcess)",),
    )


def _answers(url: str) -> Callable[[], bool]:
    def ready() -> bool:
        try:
            with urllib.request.urlopen(url, timeout=2) as reply:
                return bool(reply.status == 200)
        except OSError:
            return False

    return ready


def _beats(url: str) -> Callable[[], bool]:
    """Beat and a tick worker are ready when a tick came through: no process can say so alone."""

    def ready() -> bool:
        try:
            with urllib.request.urlopen(url, timeout=5) as reply:
                report = json.load(reply)
        except urllib.error.HTTPError as refused:
            report = json.load(refused)
        except (OSError, ValueError):
            return False
        return bool(report["checks"]["beat"]["ok"])

    return ready
