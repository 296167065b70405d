"""A backend without a model: answers Health and Free, and misbehaves as its folder says.

It stands in the folder next to run.sh and a file `manner`: one word a line. Messages are written
by hand, so that it needs grpcio and nothing else: `Reply{message: "OK"}` is four bytes.
"""

import os
import signal
import sys
import threading
import time
from concurrent import futures
from pathlib import Path

import grpc

HERE = Path(__file__).resolve().parent
MANNER = (HERE / "manner").read_text().split()
OK = b"\x0a\x02OK"


def health(_: bytes, __: grpc.ServicerContext) -> bytes:
    return OK


def free(_: bytes, context: grpc.ServicerContext) -> bytes:
    sys.stderr.write("asked to free\n")
    sys.stderr.flush()
    if "free-fails" in MANNER:
        context.abort(grpc.StatusCode.INTERNAL, "cannot free")
    if "free-hangs" in MANNER:
        time.sleep(60)
    return b""


class Token(grpc.ServerInterceptor):
    """Whoever speaks to a backend must have the registration token."""

    def __init__(self, token: str) -> None:
        self._wanted = ("authorization", f"Bearer {token}")

    def intercept_service(self, continuation, details):  # type: ignore[no-untyped-def]
        known = tuple(self._wanted) in [tuple(pair) for pair in details.invocation_metadata]
        return continuation(details) if known else grpc.unary_unary_rpc_method_handler(refuse)


def refuse(_: bytes, context: grpc.ServicerContext) -> bytes:
    context.abort(grpc.StatusCode.UNAUTHENTICATED, "no token")
    return b""


def main() -> None:
    address = sys.argv[sys.argv.index("--addr") + 1]
    sys.stdout.write(f"stub {(HERE / 'version').read_text()} for {address}\n")
    sys.stdout.flush()
    if "dies" in MANNER:
        sys.stderr.write("no such accelerator\n")
        sys.exit(3)
    if "never-ready" in MANNER:
        sys.stderr.write("warming up, for ever\n")
        sys.stderr.flush()
        threading.Event().wait()
    token = os.environ.get("LOCALAI_GRPC_AUTH_TOKEN", "")
    server = grpc.server(
        futures.ThreadPoolExecutor(4), interceptors=[Token(token)] if token else []
    )
    handlers = {
        "Health": grpc.unary_unary_rpc_method_handler(health),
        "Free": grpc.unary_unary_rpc_method_handler(free),
    }
    service = grpc.method_handlers_generic_handler("backend.Backend", handlers)
    server.add_generic_rpc_handlers((service,))
    server.add_insecure_port(address)
    server.start()
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    ended.wait()
    os._exit(0)


if __name__ == "__main__":
    main()
