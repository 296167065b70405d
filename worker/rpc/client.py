"""Asks a backend process; every question has a deadline and carries the bearer token."""

from collections.abc import AsyncIterator
from datetime import timedelta
from types import TracebackType
from typing import Self

import grpc

from worker.rpc import backend_pb2 as pb
from worker.rpc import backend_pb2_grpc

MESSAGE_LIMIT = 50 * 2**20  # bytes, both ways
OK = b"OK"
BRIEFLY = timedelta(seconds=2)
FREE_WITHIN = timedelta(seconds=5)
OPTIONS = [
    ("grpc.max_send_message_length", MESSAGE_LIMIT),
    ("grpc.max_receive_message_length", MESSAGE_LIMIT),
    # Channels to one address share a connection otherwise, and with it a dead one's back-off.
    ("grpc.use_local_subchannel_pool", 1),
    # The first question often comes before the process listens: ask again soon, not in a second.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.enable_http_proxy", 0),  # a proxy of the environment is no way to 127.0.0.1
]


class BackendClient:
    """One channel to one address; use it as an async context manager.

    A refusal is raised as `grpc.aio.AioRpcError`: its code says busy, gone or refused.
    """

    def __init__(self, address: str, *, token: str = "") -> None:
        self._channel = grpc.aio.insecure_channel(address, options=OPTIONS)
        self._stub = backend_pb2_grpc.BackendStub(self._channel)  # type: ignore[no-untyped-call]
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._channel.close(None)

    async def health(self, *, within: timedelta = BRIEFLY) -> bool:
        """Whether it answers, and answers OK."""
        reply: pb.Reply = await self._stub.Health(pb.HealthMessage(), **self._call(within))
        return reply.message == OK

    async def load(self, options: pb.ModelOptions, *, within: timedelta) -> pb.Result:
        """Look at `success`, too: Python backends refuse with an OK status."""
        result: pb.Result = await self._stub.LoadModel(options, **self._call(within))
        return result

    async def free(self, *, within: timedelta = FREE_WITHIN) -> None:
        """Only the status counts; what the result says is ignored, as LocalAI does."""
        await self._stub.Free(pb.HealthMessage(), **self._call(within))

    async def status(self, *, within: timedelta = BRIEFLY) -> pb.StatusResponse:
        reply: pb.StatusResponse = await self._stub.Status(pb.HealthMessage(), **self._call(within))
        return reply

    async def predict(self, options: pb.PredictOptions, *, within: timedelta) -> pb.Reply:
        reply: pb.Reply = await self._stub.Predict(options, **self._call(within))
        return reply

    async def stream(
        self, options: pb.PredictOptions, *, within: timedelta
    ) -> AsyncIterator[pb.Reply]:
        async for reply in self._stub.PredictStream(options, **self._call(within)):
            yield reply

    async def embed(self, options: pb.PredictOptions, *, within: timedelta) -> pb.EmbeddingResult:
        result: pb.EmbeddingResult = await self._stub.Embedding(options, **self._call(within))
        return result

    async def tokenize(
        self, options: pb.PredictOptions, *, within: timedelta = BRIEFLY
    ) -> pb.TokenizationResponse:
        reply: pb.TokenizationResponse = await self._stub.TokenizeString(
            options, **self._call(within)
        )
        return reply

    def _call(self, within: timedelta) -> dict[str, object]:
        return {"timeout": within.total_seconds(), "metadata": self._metadata}
