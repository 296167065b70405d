import asyncio
import gzip
import json
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pytest
from aiohttp import ClientTimeout, web

from clustermgr import roles
from nodes import workerhttp
from nodes.models import BackendNode
from nodes.services import jointokens, logs
from tests.api.clients import Caller, operator, read
from tests.factories import NOW, make_node, make_token
from tests.logs.worker import SECRET, LogWorker, line
from tests.services import free_port

pytestmark = pytest.mark.django_db


@pytest.fixture
def reader(db: None) -> Caller:
    return operator("view_logs")


def logs_of(node: BackendNode, key: str = "") -> str:
    return f"/api/nodes/{node.pk}/backend-logs" + (f"/{quote(key, safe='')}" if key else "")


def texts(reply: Any) -> list[str]:
    assert reply.status_code == 200, reply.content
    return [shown["text"] for shown in read(reply)]


def test_the_index_names_models_without_their_replicas(reader: Caller, node: BackendNode) -> None:
    assert read(reader.get(logs_of(node))) == ["llama"]


def test_row_80_a_model_alone_merges_its_replicas_and_a_number_selects_one(
    reader: Caller, node: BackendNode
) -> None:
    assert texts(reader.get(logs_of(node, "llama"))) == [
        "loading",
        "hello from one",
        "cuda is slow",
    ]
    one = reader.get(logs_of(node, "llama#1"))
    assert read(one) == [line("hello from one", second=2)]


def test_a_process_nobody_knows_has_no_lines(reader: Caller, node: BackendNode) -> None:
    assert texts(reader.get(logs_of(node, "unknown#3"))) == []


@pytest.mark.parametrize("name", ["org/model", "50% off", "a b", "ü#1", "a?b=c", "..", "%2e%2e"])
def test_any_name_reaches_the_worker_as_it_is(
    reader: Caller, node: BackendNode, worker: LogWorker, name: str
) -> None:
    worker.logs = {f"{name}#0": [line("found")]}
    assert texts(reader.get(logs_of(node, f"{name}#0"))) == ["found"]


@pytest.mark.parametrize(
    ("sieve", "expected"),
    [
        ("stream=stderr", ["cuda is slow"]),
        ("stream=stdout", ["loading", "hello from one"]),
        ("q=HELLO", ["hello from one"]),
        ("tail=1", ["cuda is slow"]),
        ("stream=stdout&tail=1", ["hello from one"]),
        ("since=2030-01-01T12:00:02Z", ["hello from one", "cuda is slow"]),
        ("since=2030-01-01T13:00:02%2B01:00", ["hello from one", "cuda is slow"]),
        ("since=2031-01-01T00:00:00Z", []),
        ("stream=&q=&since=", ["loading", "hello from one", "cuda is slow"]),
    ],
)
def test_row_80_a_sieve_narrows(
    reader: Caller, node: BackendNode, sieve: str, expected: list[str]
) -> None:
    assert texts(reader.get(f"{logs_of(node, 'llama')}?{sieve}")) == expected


@pytest.mark.parametrize(
    "sieve",
    ["stream=stdin", "tail=0", "tail=-1", "tail=x", "since=yesterday", "format=xml", "q=%00"],
)
def test_a_sieve_that_means_nothing_is_refused(
    reader: Caller, node: BackendNode, worker: LogWorker, sieve: str
) -> None:
    reply = reader.get(f"{logs_of(node, 'llama')}?{sieve}")
    assert (reply.status_code, read(reply)["code"]) == (400, "invalid_input")
    assert worker.heard == []


def test_row_80_a_file_of_text_shows_what_a_terminal_would_obey(
    reader: Caller, node: BackendNode, worker: LogWorker
) -> None:
    worker.logs = {'a"b/../c#0': [line("red \x1b[31m", second=1), line("tab\there")]}
    reply = reader.get(logs_of(node, 'a"b/../c#0') + "?format=text")
    assert reply.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert reply.headers["Content-Disposition"] == 'attachment; filename="a-b----c-0.log"'
    assert reply.content.decode().splitlines() == [
        "2030-01-01T12:00:01.5Z stdout red \\x1b[31m",
        "2030-01-01T12:00:00.5Z stdout tab\there",
    ]


def test_a_file_of_json_is_what_the_api_says(reader: Caller, node: BackendNode) -> None:
    reply = reader.get(logs_of(node, "llama#1") + "?format=json")
    assert reply.headers["Content-Disposition"].startswith("attachment")
    assert read(reply) == [line("hello from one", second=2)]


def test_a_line_that_cannot_be_dated_is_not_hidden(
    reader: Caller, node: BackendNode, worker: LogWorker
) -> None:
    worker.logs = {"llama#0": [{"timestamp": "noon", "stream": "stdout", "text": "when?"}]}
    assert texts(reader.get(logs_of(node, "llama") + "?since=2031-01-01T00:00:00Z")) == ["when?"]


def test_logs_take_a_permission_of_their_own(node: BackendNode, worker: LogWorker) -> None:
    for path in (logs_of(node), logs_of(node, "llama")):
        assert operator("view_backendnode", "view_nodemodel").get(path).status_code == 403
        assert Caller("").get(path).status_code == 401
    assert worker.heard == []


def test_an_unknown_node_is_not_found(reader: Caller) -> None:
    for name in (uuid4(), "gpu-1"):
        assert reader.get(f"/api/nodes/{name}/backend-logs").status_code == 404
        assert reader.get(f"/api/nodes/{name}/backend-logs/llama").status_code == 404


def test_a_node_without_an_http_server_has_no_logs(reader: Caller, node: BackendNode) -> None:
    BackendNode.objects.update(http_address="")
    reply = reader.get(logs_of(node))
    assert (reply.status_code, "has no HTTP server" in read(reply)["detail"]) == (404, True)


@pytest.mark.parametrize(
    "changes",
    [
        {"approved_at": None, "approved_by": ""},
        {"retired_at": "2030-01-01T00:00Z", "retired_by": "ada"},
    ],
)
def test_who_was_not_let_in_is_not_asked(
    reader: Caller, node: BackendNode, worker: LogWorker, changes: dict[str, Any]
) -> None:
    BackendNode.objects.update(**changes)
    assert reader.get(logs_of(node)).status_code == 409
    assert worker.heard == []


def test_a_secret_that_we_do_not_have_is_told_with_the_remedy(
    reader: Caller, node: BackendNode, worker: LogWorker
) -> None:
    BackendNode.objects.update(join_token=make_token(name="rack 9"))
    reply = reader.get(logs_of(node))
    assert (reply.status_code, read(reply)["code"]) == (409, "worker_token_unknown")
    assert "joined with the token rack 9" in read(reply)["detail"]
    assert "CLUSTER_WORKER_HTTP_TOKENS" in read(reply)["detail"]
    assert worker.heard == []


def test_a_secret_goes_to_nobody_but_who_joined_with_it(
    reader: Caller, node: BackendNode, worker: LogWorker, settings: Any
) -> None:
    theirs, other = jointokens.digest("theirs"), jointokens.digest("other")
    joined = make_token(name="rack 9", digest=theirs)
    make_token(name="rack 8", digest=other)
    BackendNode.objects.update(join_token=joined)
    settings.CLUSTER = type(settings.CLUSTER).from_env(
        {"CLUSTER_WORKER_HTTP_TOKENS": "other, theirs", "CLUSTER_REGISTRATION_TOKEN": SECRET}
    )
    reader.get(logs_of(node))
    assert [bearer for _, bearer in worker.heard] == ["theirs"]


def test_a_node_that_joined_with_a_token_of_ours_needs_nothing_in_the_environment(
    reader: Caller, node: BackendNode, worker: LogWorker
) -> None:
    token, secret = jointokens.issue("rack 9", by="ada", now=NOW)
    BackendNode.objects.update(join_token=token)
    reader.get(logs_of(node))
    assert [bearer for _, bearer in worker.heard] == [secret]


def test_nobody_at_the_address_is_told_with_the_age_of_the_last_heartbeat(
    reader: Caller, node: BackendNode
) -> None:
    BackendNode.objects.update(http_address=f"127.0.0.1:{free_port()}")
    reply = reader.get(logs_of(node))
    assert (reply.status_code, read(reply)["code"]) == (502, "worker_unreachable")
    assert "Nobody answers at 127.0.0.1" in read(reply)["detail"]
    assert "The last heartbeat of gpu-1 was" in read(reply)["detail"]


@pytest.mark.parametrize(
    "address",
    [
        *("user:password@127.0.0.1:1", "127.0.0.1:1/elsewhere", "127.0.0.1", "127.0.0.1:x"),
        *(
            "127.0.0.1:1?q=",
            "127.0.0.1:1#f",
            "http://127.0.0.1:1",
            "[::1",
            "a b:1",
            "127.0.0.1:99999",
        ),
    ],
)
def test_an_address_that_is_more_than_host_and_port_is_not_dialled(
    reader: Caller, node: BackendNode, address: str
) -> None:
    BackendNode.objects.update(http_address=address)
    reply = reader.get(logs_of(node))
    assert (reply.status_code, read(reply)["code"]) == (502, "node_refused")
    assert "which is no host:port" in read(reply)["detail"]


async def garbage(_: web.Request) -> web.Response:
    return web.Response(body=b"<html>\xff")


async def wrong_shape(_: web.Request) -> web.Response:
    return web.json_response({"logs": 1})


async def wrong_types(_: web.Request) -> web.Response:
    return web.json_response([{"timestamp": 1, "stream": [], "text": {}}])


async def huge(_: web.Request) -> web.Response:
    return web.Response(body=b"[" + b" " * (workerhttp.MAX_BYTES + 1) + b"]")


async def bomb(_: web.Request) -> web.Response:
    squeezed = gzip.compress(b" " * 50_000_000)
    return web.Response(body=squeezed, headers={"Content-Encoding": "gzip"})


async def unknown_token(_: web.Request) -> web.Response:
    return web.Response(status=401)


async def failing(_: web.Request) -> web.Response:
    return web.Response(status=500, text="stack trace")


async def breaking_off(request: web.Request) -> web.StreamResponse:
    reply = web.StreamResponse(headers={"Content-Length": "100"})
    await reply.prepare(request)
    await reply.write(b"[")
    assert request.transport is not None
    request.transport.close()
    return reply


@pytest.mark.parametrize(
    ("misbehaviour", "words"),
    [
        (garbage, "unreadable"),
        (wrong_shape, "unreadable"),
        (wrong_types, "unreadable"),
        (huge, "more than 8 MB"),
        (bomb, "unreadable"),
        (unknown_token, "does not accept the token"),
        (failing, "answers with status 500"),
        (breaking_off, "breaks off"),
    ],
)
def test_a_worker_that_answers_nonsense_is_a_bad_gateway_in_a_sentence(
    reader: Caller, node: BackendNode, worker: LogWorker, misbehaviour: Any, words: str
) -> None:
    worker.instead = misbehaviour
    for path in (logs_of(node), logs_of(node, "llama")):
        reply = reader.get(path)
        assert reply.status_code == 502
        assert words in read(reply)["detail"]
        assert SECRET not in reply.content.decode()


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_worker_that_sends_us_elsewhere_is_not_followed(
    reader: Caller, node: BackendNode, worker: LogWorker, status: int
) -> None:
    async def elsewhere(_: web.Request) -> web.Response:
        return web.Response(status=status, headers={"Location": f"http://{thief.address}/"})

    with LogWorker().running() as thief:
        worker.instead = elsewhere
        reply = reader.get(logs_of(node))
        assert thief.heard == []
    assert (reply.status_code, "sends us elsewhere" in read(reply)["detail"]) == (502, True)


def test_a_worker_that_takes_its_time_is_given_up(
    reader: Caller, node: BackendNode, worker: LogWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def dripping(request: web.Request) -> web.StreamResponse:
        reply = web.StreamResponse()
        await reply.prepare(request)
        while True:
            await reply.write(b" ")
            await asyncio.sleep(0.05)

    monkeypatch.setattr(workerhttp, "WITHIN", ClientTimeout(total=0.5))
    worker.instead = dripping
    reply = reader.get(logs_of(node))
    assert (reply.status_code, read(reply)["code"]) == (502, "worker_unreachable")
    assert "does not answer" in read(reply)["detail"]


def test_null_is_an_empty_list_to_a_go_program(
    reader: Caller, node: BackendNode, worker: LogWorker
) -> None:
    async def null(_: web.Request) -> web.Response:
        return web.Response(text=json.dumps(None))

    worker.instead = null
    assert read(reader.get(logs_of(node))) == []
    assert read(reader.get(logs_of(node, "llama"))) == []


def test_slow_workers_do_not_take_every_seat(
    reader: Caller, node: BackendNode, worker: LogWorker
) -> None:
    taken = [logs._seats.acquire(blocking=False) for _ in range(logs.AT_ONCE)]
    try:
        reply = reader.get(logs_of(node))
    finally:
        for _ in taken:
            logs._seats.release()
    assert (reply.status_code, read(reply)["code"]) == (503, "busy")
    assert reader.get(logs_of(node)).status_code == 200


def test_logs_are_for_operators_and_not_for_viewers() -> None:
    granted = roles.ROLES
    assert ["nodes.view_logs" in granted[name] for name in ("viewer", "operator", "admin")] == [
        False,
        True,
        True,
    ]


def test_a_node_that_never_joined_with_a_token_is_told(reader: Caller, worker: LogWorker) -> None:
    node = make_node(http_address=worker.address)
    assert "has to register again" in read(reader.get(logs_of(node)))["detail"]
