from io import BytesIO
from typing import Any

import pytest
from django.core.handlers.asgi import ASGIRequest
from django.test import override_settings

from nodes.api.worker import RegisterView
from nodes.models import BackendNode
from tests.api.clients import REGISTRATION, SECRET, Caller, Worker, read


def test_a_trailing_slash_is_neither_asked_for_nor_minded(worker: Worker) -> None:
    node = worker.joined()
    for path in (f"/api/node/{node}/heartbeat", f"/api/node/{node}/heartbeat/"):
        assert worker.post(path, {}).status_code == 200
    body = {**REGISTRATION, "token": SECRET}
    assert worker.post("/api/node/register/", body).status_code == 201


@override_settings(SECURE_SSL_REDIRECT=True)
def test_plain_http_is_not_redirected_even_where_people_are(worker: Worker) -> None:
    assert worker.get("/admin/login/").status_code == 301
    assert worker.register().status_code == 201


@pytest.mark.parametrize("content_type", ["", "text/plain", "application/x-www-form-urlencoded"])
def test_the_content_type_does_not_matter(worker: Worker, content_type: str) -> None:
    body = {**REGISTRATION, "token": SECRET}
    reply = worker.send("POST", "/api/node/register", body, content_type=content_type)
    assert reply.status_code == 201


@pytest.mark.parametrize("accept", ["text/html", "application/xml", "nonsense", "*/*;q=0"])
def test_what_a_worker_accepts_does_not_matter(worker: Worker, accept: str) -> None:
    node = worker.joined()
    reply = worker.post(f"/api/node/{node}/heartbeat?format=xml", {}, Accept=accept)
    assert (reply.status_code, read(reply)) == (200, {"message": "heartbeat received"})


@pytest.mark.parametrize("body", [b"", b"  ", b"{}", b"null", b"[]", b"{", b"\xff", b'{"a": NaN}'])
def test_a_heartbeat_counts_whatever_its_body(worker: Worker, body: bytes) -> None:
    node = worker.joined()
    BackendNode.objects.update(last_heartbeat="2000-01-01T00:00:00Z")
    assert worker.post(f"/api/node/{node}/heartbeat", body).status_code == 200
    assert BackendNode.objects.get().last_heartbeat.year > 2000


def test_readings_that_make_no_sense_are_left_out_of_a_heartbeat(worker: Worker) -> None:
    node = worker.joined()
    readings = {"available_ram": -1, "total_disk": 2**64, "available_disk": "7", "GPU_Vendor": 1}
    assert worker.post(f"/api/node/{node}/heartbeat", readings).status_code == 200
    kept = BackendNode.objects.get()
    assert (kept.available_ram, kept.gpu_vendor) == (REGISTRATION["available_ram"], "nvidia")


def test_keys_match_in_any_case_and_unknown_ones_are_ignored(worker: Worker) -> None:
    body = {"Name": "a", "ADDRESS": "a:1", "Token": SECRET, "shoe_size": [44, {"deep": None}]}
    assert worker.post("/api/node/register", body).status_code == 201
    assert BackendNode.objects.get().name == "a"


def test_of_two_equal_keys_the_last_counts_as_in_go(worker: Worker) -> None:
    body = b'{"name":"a","name":"b","address":"a:1","token":"%s"}' % SECRET.encode()
    assert worker.post("/api/node/register", body).status_code == 201
    assert BackendNode.objects.get().name == "b"


def test_null_means_not_given(worker: Worker) -> None:
    nothing = dict.fromkeys(set(REGISTRATION) - {"name", "address"})
    reply = worker.register(**nothing, node_type=None)
    assert reply.status_code == 201
    node = BackendNode.objects.get()
    assert (node.node_type, node.total_vram, node.max_replicas_per_model) == ("backend", 0, 1)


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", f"bearer {SECRET}", f"Token {SECRET}", SECRET, "Bearer é"]
)
def test_the_header_is_compared_exactly(worker: Worker, header: str) -> None:
    reply = Caller("").post("/api/node/register", REGISTRATION, Authorization=header)
    assert reply.status_code == 401
    assert isinstance(read(reply)["error"], str)
    assert not BackendNode.objects.exists()


def test_a_source_that_guesses_is_told_to_wait_in_the_same_shape(worker: Worker) -> None:
    replies = [Worker("wrong").register() for _ in range(22)]
    assert [reply.status_code for reply in replies] == [401] * 20 + [429] * 2
    assert isinstance(read(replies[-1])["error"], str)
    assert worker.register().status_code == 201


def test_a_session_opens_nothing_for_a_worker(worker: Worker, admin_client: Any) -> None:
    assert admin_client.post("/api/node/register", REGISTRATION).status_code == 401


def test_a_server_on_a_socket_knows_no_address_and_refuses_all_the_same(worker: Worker) -> None:
    header = (b"authorization", b"Bearer wrong")
    scope = {"type": "http", "method": "POST", "path": "/", "headers": [header]}
    reply = RegisterView.as_view()(ASGIRequest({**scope, "query_string": b""}, BytesIO()))
    assert reply.status_code == 401
