"""The demo workers of `manage.py up`: real nodes on this machine that claim to be bigger ones."""

import json
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from clustermgr.embedded import ports
from clustermgr.embedded.parts import ROOT
from clustermgr.embedded.supervisor import Part

WANTED = 3
MOST = 20
# Not LocalAI's 50051: a worker of your own beside them wants it. Each gets a hundred, and the
# one below for its probes and logs
FIRST_PORT = 21_051
PORTS = 100
# What they claim: the registry, labels and selectors have something to tell apart
GUISES = (("24GiB", "tier=fast"), ("12GiB", "tier=slow"), ("0", "tier=cpu"))
# Slow enough that an install can be watched
DOWNLOAD_RATE = "2MiB"


def wanted(env: Mapping[str, str]) -> int:
    """How many to start; a number nobody can mean is refused with a sentence."""
    text = env.get("CLUSTER_DEMO_WORKERS") or str(WANTED)
    if not text.isdecimal() or int(text) > MOST:
        raise ValueError(f"CLUSTER_DEMO_WORKERS must be a number up to {MOST}, not {text!r}.")
    return int(text)


def galleries(data_dir: Path) -> str:
    """Where the workers' own galleries are, for the manager to list and compare."""
    home = data_dir / "workers" / "demo-1" / "gallery"
    names = {"builtin": home / "index.yaml", "builtin-previous": home / "previous" / "index.yaml"}
    return json.dumps([{"name": name, "url": str(path)} for name, path in names.items()])


def workers(
    count: int, *, env: Mapping[str, str], data_dir: Path, url: str, nats_url: str, token: str
) -> list[Part]:
    """So many real workers, each in a folder of its own; they come in as pending."""
    blocks = _free_blocks()
    parts = []
    for number in range(1, count + 1):
        port = next(blocks)
        vram, labels = GUISES[(number - 1) % len(GUISES)]
        name = f"demo-{number}"
        told = {
            "LOCALAI_REGISTER_TO": url,
            "LOCALAI_NATS_URL": nats_url,
            "LOCALAI_NATS_REQUIRE_AUTH": "true",
            "LOCALAI_REGISTRATION_TOKEN": token,
            "LOCALAI_NODE_NAME": name,
            "LOCALAI_ADDR": f"127.0.0.1:{port}",
            "LOCALAI_HTTP_ADDR": f"127.0.0.1:{port - 1}",
            "LOCALAI_GRPC_MAX_PORT": str(port + PORTS - 2),
            "LOCALAI_MAX_REPLICAS_PER_MODEL": "2",
            "LOCALAI_NODE_LABELS": f"demo=true,{labels}",
            "WORKER_STATE_DIR": str(data_dir / "workers" / name),
            "WORKER_DOWNLOAD_RATE": DOWNLOAD_RATE,
            "WORKER_PRETEND_VRAM": vram,
            "WORKER_LOG_LEVEL": "warning",
        }
        parts.append(
            Part(
                name=name,
                command=(sys.executable, "-m", "worker"),
                env={**_without_secrets(env), **told},
                cwd=ROOT,
                ready=_answers(port - 1),
                grace=20,
                guest=True,
            )
        )
    return parts


def _without_secrets(env: Mapping[str, str]) -> dict[str, str]:
    """A worker is somebody else's machine: it gets none of the manager's settings."""
    ours = ("CLUSTER_", "DJANGO_", "CELERY_", "DATABASE_", "LOCALAI_", "WORKER_", "PROMETHEUS_")
    return {name: value for name, value in env.items() if not name.startswith(ours)}


def _free_blocks() -> Iterator[int]:
    for port in range(FIRST_PORT, ports.HIGHEST - PORTS, PORTS):
        if ports.is_free(port - 1) and ports.is_free(port):
            yield port
    raise RuntimeError("There are no free ports for the demo workers; set CLUSTER_DEMO_WORKERS=0.")


def _answers(port: int) -> Callable[[], bool]:
    def ready() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=2) as reply:
                return bool(reply.status == 200)
        except OSError:
            return False

    return ready
