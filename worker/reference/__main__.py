"""`run.sh --addr host:port`: serve until told to stop, or until the worker is gone."""

import argparse
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from concurrent import futures
from pathlib import Path

import grpc

from worker.reference.knobs import Knobs
from worker.reference.service import Backend, Bearer
from worker.rpc import backend_pb2_grpc
from worker.rpc.client import MESSAGE_LIMIT

log = logging.getLogger("reference")
THREADS = 16
PARENT_WATCH = 2.0  # seconds


def main(arguments: list[str], environment: Mapping[str, str]) -> int:
    parser = argparse.ArgumentParser(prog="reference backend")
    parser.add_argument("--addr", required=True, help="host:port to listen on")
    address = parser.parse_args(arguments).addr
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stderr)
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    _watch_parent(environment, ended)
    knobs = Knobs.read(environment)
    if knobs.die_at_once:
        log.error("die_at_once is set: ending with code %s", knobs.die_at_once)
        return knobs.die_at_once
    if ended.wait(knobs.start_seconds):
        return 0
    server = None if knobs.never_ready else _serving(address, environment)
    ended.wait()
    if server:
        server.stop(grace=1).wait()
    return 0


def _serving(address: str, environment: Mapping[str, str]) -> grpc.Server:
    home = Path(__file__).resolve().parent
    token = environment.get("LOCALAI_GRPC_AUTH_TOKEN", "")
    server = grpc.server(
        futures.ThreadPoolExecutor(THREADS),
        interceptors=[Bearer(token)] if token else [],
        options=[
            ("grpc.max_send_message_length", MESSAGE_LIMIT),
            ("grpc.max_receive_message_length", MESSAGE_LIMIT),
            ("grpc.so_reuseport", 0),  # a taken port is an error, not a silent share
        ],
    )
    version = (home / "VERSION").read_text().strip()
    backend = Backend(home=home, version=version, environment=environment)
    backend_pb2_grpc.add_BackendServicer_to_server(backend, server)  # type: ignore[no-untyped-call]
    server.add_insecure_port(address)
    server.start()
    print(f"reference backend {version} listens on {address}", flush=True)
    return server


def _watch_parent(environment: Mapping[str, str], ended: threading.Event) -> None:
    """End with the worker where the kernel does not see to it (macOS): look who our parent is."""
    if environment.get("LOCALAI_BACKEND_PARENT_WATCH", "true").lower() in ("false", "0", "off"):
        return
    parent = os.getppid()

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_WATCH)
        ended.set()

    threading.Thread(target=look, name="parent watch", daemon=True).start()


if __name__ == "__main__":
    code = main(sys.argv[1:], os.environ)
    logging.shutdown()
    os._exit(code)  # a load under way would be waited for otherwise
