from collections.abc import Callable, Iterator

import pytest

from nodes.models import BackendNode, JoinToken
from nodes.services import environment
from tests.factories import NOW, make_node
from tests.logs.worker import SECRET, LogWorker, line

Join = Callable[..., BackendNode]


@pytest.fixture
def worker() -> Iterator[LogWorker]:
    with LogWorker().running() as server:
        server.logs = {
            "llama#0": [line("loading", second=1), line("cuda is slow", second=3, stream="stderr")],
            "llama#1": [line("hello from one", second=2)],
        }
        yield server


@pytest.fixture
def environment_token(db: None) -> JoinToken:
    token = environment.sync(SECRET, auto_approve=False, now=NOW)
    assert token is not None
    return token


@pytest.fixture
def node(worker: LogWorker, environment_token: JoinToken) -> BackendNode:
    """A node that joined with the token of the environment; its worker really listens."""
    return make_node(http_address=worker.address, join_token=environment_token)
