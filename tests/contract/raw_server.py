"""Speaks just enough NATS to see, line by line, what a client lets out."""

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager

INFO = {"server_id": "raw", "version": "2.15.1", "headers": True, "max_payload": 1024 * 1024}


@contextmanager
def raw_server() -> Iterator[tuple[str, list[bytes]]]:
    """Yields host and port, and the lines that clients have sent so far."""
    lines: list[bytes] = []

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"INFO %s\r\n" % json.dumps(INFO).encode())
            for line in self.rfile:
                lines.append(line.strip())
                if line == b"PING\r\n":
                    self.wfile.write(b"PONG\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        host, port = server.server_address[:2]
        yield f"{host!s}:{port}", lines
        server.shutdown()
