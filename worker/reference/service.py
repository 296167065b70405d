"""Answers the questions of the wire. One model at a time, as all backends."""

import hmac
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import grpc

from worker.reference import language
from worker.reference.knobs import Knobs
from worker.rpc import backend_pb2 as pb
from worker.rpc import backend_pb2_grpc

log = logging.getLogger(__name__)

DEFAULT_TOKENS = 64
MOST_TOKENS = 4096
MODEL_TEXT = 2**20  # bytes of a model file that are learnt
CRASH_CODE = 70
PAGE = 4096
MEMORY_SINCE = "1.1.0"  # the version that tells its memory and counts tokens

Context = grpc.ServicerContext


@dataclass(slots=True, kw_only=True)
class Model:
    """What LoadModel made and Free takes away."""

    identity: str
    chain: language.Chain
    knobs: Knobs
    memory: dict[str, bytearray] = field(default_factory=dict)


class Backend(backend_pb2_grpc.BackendServicer):
    """`home` is the folder with corpus and weights; `version` decides what it can do."""

    def __init__(self, *, home: Path, version: str, environment: Mapping[str, str]) -> None:
        self._home = home
        self._version = version
        self._environment = environment
        self._model: Model | None = None
        self._busy = 0
        self._one_at_a_time = threading.Lock()

    def Health(self, request: pb.HealthMessage, context: Context) -> pb.Reply:
        with self._turn():
            return pb.Reply(message=b"OK")

    def LoadModel(self, request: pb.ModelOptions, context: Context) -> pb.Result:
        try:
            knobs = Knobs.read(self._environment, request.Options)
            model = self._load(request, knobs)
        except (ValueError, OSError, MemoryError) as error:
            return pb.Result(success=False, message=f"cannot load {request.Model}: {error}")
        if knobs.load_fails == "status":
            _abort(context, grpc.StatusCode.INTERNAL, "load_fails is set")
        if knobs.load_fails:
            return pb.Result(success=False, message="load_fails is set")
        self._model = model
        log.info("loaded %s", request.Model)
        if knobs.crash == "after_load":
            threading.Timer(0.1, _crash, ["after_load"]).start()
        return pb.Result(success=True, message=f"{request.Model} is loaded")

    def Free(self, request: pb.HealthMessage, context: Context) -> pb.Result:
        self._model = None
        log.info("freed")
        return pb.Result(success=True)

    def Status(self, request: pb.HealthMessage, context: Context) -> pb.StatusResponse:
        state = pb.StatusResponse.State
        if self._model is None:
            return pb.StatusResponse(state=state.UNINITIALIZED)
        now = state.BUSY if self._busy else state.READY
        if self._version < MEMORY_SINCE:
            return pb.StatusResponse(state=now)
        sizes = {name: len(block) for name, block in self._model.memory.items()}
        memory = pb.MemoryUsageData(total=sum(sizes.values()), breakdown=sizes)
        return pb.StatusResponse(state=now, memory=memory)

    def Predict(self, request: pb.PredictOptions, context: Context) -> pb.Reply:
        said = list(self.PredictStream(request, context))
        return pb.Reply(
            message=b"".join(reply.message for reply in said),
            tokens=sum(reply.tokens for reply in said),
            prompt_tokens=len(language.tokens(_prompt(request))),
            timing_token_generation=sum(reply.timing_token_generation for reply in said),
        )

    def PredictStream(self, request: pb.PredictOptions, context: Context) -> Iterator[pb.Reply]:
        model = self._asked(request, context)
        prompt = _prompt(request)
        limit = min(request.Tokens if request.Tokens > 0 else DEFAULT_TOKENS, MOST_TOKENS)
        words = model.chain.walk(prompt, seed=request.Seed, temperature=request.Temperature)
        pause = model.knobs.predict_seconds / limit
        with self._turn():
            self._busy += 1
            try:
                for piece in language.pieces(words, limit=limit, stops=request.StopPrompts):
                    began = time.monotonic()
                    if pause and context.is_active():
                        time.sleep(pause)
                    yield pb.Reply(
                        message=piece.encode(),
                        tokens=len(language.tokens(piece)),
                        timing_token_generation=time.monotonic() - began,
                    )
            finally:
                self._busy -= 1

    def Embedding(self, request: pb.PredictOptions, context: Context) -> pb.EmbeddingResult:
        self._asked(request, context)
        count = len(language.tokens(request.Embeddings))
        with self._turn():
            return pb.EmbeddingResult(
                embeddings=language.embed(request.Embeddings),
                tokens=count,
                prompt_tokens=count,
                dim=language.DIMENSIONS,
                layout=pb.EmbeddingResult.Layout.FINAL,
            )

    def TokenizeString(
        self, request: pb.PredictOptions, context: Context
    ) -> pb.TokenizationResponse:
        if self._version < MEMORY_SINCE:
            _abort(context, grpc.StatusCode.UNIMPLEMENTED, f"not in version {self._version}")
        self._asked(request, context)
        ids = [language.token_id(token) for token in language.tokens(_prompt(request))]
        return pb.TokenizationResponse(length=len(ids), tokens=ids)

    def _load(self, request: pb.ModelOptions, knobs: Knobs) -> Model:
        if knobs.load_seconds:
            time.sleep(knobs.load_seconds)
        if knobs.crash == "at_load":
            _crash("at_load")
        chain = language.Chain((self._home / "corpus.txt").read_text())
        if request.ModelFile:  # a text from which it learns more
            with open(request.ModelFile, "rb") as file:
                chain.learn(file.read(MODEL_TEXT).decode(errors="replace"))
        memory = {"asked for": _touched(knobs.memory_bytes)} if knobs.memory_bytes else {}
        weights = self._home / "weights.bin"
        if weights.exists():
            memory["weights"] = bytearray(weights.read_bytes())
        return Model(identity=request.Model, chain=chain, knobs=knobs, memory=memory)

    def _asked(self, request: pb.PredictOptions, context: Context) -> Model:
        """The model this request is meant for."""
        model = self._model
        if model is None:
            _abort(context, grpc.StatusCode.FAILED_PRECONDITION, "model not loaded")
        if request.ModelIdentity and model.identity and request.ModelIdentity != model.identity:
            _abort(
                context,
                grpc.StatusCode.NOT_FOUND,
                f"model identity mismatch: {model.identity} is loaded, "
                f"{request.ModelIdentity} was asked for",
            )
        return model

    def _turn(self) -> AbstractContextManager[object]:
        serial = self._model is not None and self._model.knobs.serial
        return self._one_at_a_time if serial else nullcontext()


class Bearer(grpc.ServerInterceptor):
    """Lets nobody in without the token."""

    def __init__(self, token: str) -> None:
        self._expected = f"Bearer {token}".encode()

    def intercept_service(
        self, continuation: Callable[[Any], Any], handler_call_details: Any
    ) -> Any:
        given = dict(handler_call_details.invocation_metadata).get("authorization", "")
        if hmac.compare_digest(str(given).encode(), self._expected):
            return continuation(handler_call_details)
        return grpc.unary_unary_rpc_method_handler(_unauthenticated)


def _unauthenticated(request: object, context: Context) -> NoReturn:
    _abort(context, grpc.StatusCode.UNAUTHENTICATED, "missing or wrong bearer token")


def _abort(context: Context, code: grpc.StatusCode, details: str) -> NoReturn:
    context.abort(code, details)
    raise AssertionError("abort always raises")


def _prompt(request: pb.PredictOptions) -> str:
    if request.Prompt or not request.UseTokenizerTemplate:
        return request.Prompt
    return "\n".join(message.content for message in request.Messages)


def _touched(size: int) -> bytearray:
    """Zeros cost nothing until they are written to."""
    block = bytearray(size)
    block[::PAGE] = b"\x01" * len(range(0, size, PAGE))
    return block


def _crash(where: str) -> None:
    log.error("crashing, as asked: %s", where)
    logging.shutdown()
    os._exit(CRASH_CODE)
