"""A real HTTP server that can be told to misbehave."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web


@dataclass
class Site:
    """Files by path; what was asked for is remembered."""

    files: dict[str, bytes] = field(default_factory=dict)
    etags: dict[str, str] = field(default_factory=dict)
    cuts: dict[str, list[int]] = field(default_factory=dict)  # after so many bytes, in turn
    redirects: dict[str, str] = field(default_factory=dict)
    chunked: bool = False
    ranges: bool = True
    asked: list[tuple[str, str]] = field(default_factory=list)  # path and Range
    url: str = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        self.asked.append((path, request.headers.get("Range", "")))
        if path in self.redirects:
            return web.Response(status=302, headers={"Location": self.redirects[path]})
        if path not in self.files:
            return web.Response(status=404)
        body, etag = self.files[path], self.etags.get(path, "")
        start = self._start(request, etag)
        if start and start >= len(body):
            return web.Response(status=416, headers={"Content-Range": f"bytes */{len(body)}"})
        response = web.StreamResponse(status=206 if start else 200)
        if etag:
            response.headers["ETag"] = etag
        if start:
            response.headers["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
        if not self.chunked:
            response.content_length = len(body) - start
        await response.prepare(request)
        cuts = self.cuts.get(path)
        cut = cuts.pop(0) if cuts else len(body)
        await response.write(body[start : start + cut])
        if start + cut < len(body) and request.transport:
            request.transport.close()
        return response

    def _start(self, request: web.Request, etag: str) -> int:
        wanted = request.headers.get("Range", "").removeprefix("bytes=").rstrip("-")
        if not wanted or not self.ranges or request.headers.get("If-Range", etag) != etag:
            return 0
        return int(wanted)


@asynccontextmanager
async def serving(site: Site) -> AsyncIterator[Site]:
    app = web.Application()
    app.router.add_route("GET", "/{path:.*}", site.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    listener = web.TCPSite(runner, "127.0.0.1", 0)
    await listener.start()
    assert listener._server is not None
    port = listener._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    site.url = f"http://127.0.0.1:{port}"
    try:
        yield site
    finally:
        await runner.cleanup()
