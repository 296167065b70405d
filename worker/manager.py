"""The manager's HTTP side: register, beat, drain, leave. No redirect is ever followed."""

import math
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import aiohttp

from worker.wire import http
from worker.wire.reading import BadMessage, parsed

TIMEOUT = aiohttp.ClientTimeout(total=10)
LONGEST_ANSWER = 2**20  # bytes that we read of an answer


class ManagerError(Exception):
    """The manager did not do it; `status` 0 means that it could not be asked."""

    def __init__(self, words: str, *, status: int = 0, retry_after: float = 0.0) -> None:
        super().__init__(words)
        self.status = status
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class Manager:
    session: aiohttp.ClientSession
    url: str
    token: str = field(default="", repr=False)

    async def register(self, body: bytes) -> http.Registered:
        answer = await self._ask("POST", "register", body)
        try:
            return http.registered(answer)
        except BadMessage as nonsense:
            raise ManagerError(
                f"the answer to our registration is unreadable: {nonsense}"
            ) from None

    async def beat(self, node_id: str, body: bytes) -> float:
        """Say that we are alive; return the interval the manager wants, 0 if it does not care."""
        answer = await self._ask("POST", f"{quote(node_id)}/heartbeat", body)
        try:
            return http.beat_heard(answer).heartbeat_interval
        except BadMessage:
            return 0.0

    async def drain(self, node_id: str) -> None:
        await self._ask("POST", f"{quote(node_id)}/drain")

    async def in_flight(self, node_id: str) -> int:
        """How many requests the manager still has on us; whatever makes no sense counts as none."""
        rows = await self._ask("GET", f"{quote(node_id)}/models")
        counts = [row.get("in_flight") for row in rows if isinstance(row, dict)] if rows else []
        return sum(count for count in counts if isinstance(count, int))

    async def deregister(self, node_id: str) -> None:
        await self._ask("POST", f"{quote(node_id)}/deregister")

    async def _ask(self, method: str, path: str, body: bytes = b"") -> Any:
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        if body:
            headers["Content-Type"] = "application/json"
        try:
            async with self.session.request(
                method,
                f"{self.url}/api/node/{path}",
                data=body or None,
                headers=headers,
                timeout=TIMEOUT,
                allow_redirects=False,
            ) as response:
                told = await response.content.read(LONGEST_ANSWER)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise ManagerError(f"cannot reach {self.url}: {_words(error)}") from error
        if not 200 <= response.status < 300:
            raise ManagerError(
                _refusal(response.status, told),
                status=response.status,
                retry_after=_seconds(response.headers.get("Retry-After", "")),
            )
        return _json(told)


def _json(told: bytes) -> Any:
    try:
        return parsed(told)
    except BadMessage:
        return None


def _refusal(status: int, told: bytes) -> str:
    """The manager's words, from either of the two shapes that they come in."""
    if 300 <= status < 400:
        return f"HTTP {status}: the manager redirects; give its real address"
    body = _json(told)
    error = body.get("error") if isinstance(body, dict) else None
    words = error.get("message") if isinstance(error, dict) else error
    return f"HTTP {status}: {words if isinstance(words, str) else 'no reason given'}"


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        return 0.0
    return number if math.isfinite(number) and number > 0 else 0.0


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__
