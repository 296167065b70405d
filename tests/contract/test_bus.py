import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction
from nats.aio.client import Client
from nats.aio.msg import Msg

from clustermgr.conf import ClusterSettings
from clustermgr.lib.bus import NatsBus, default_bus
from clustermgr.lib.errors import NodeSilent, NodeUnreachable
from tests.contract.nats_server import Server
from tests.contract.responder import responding, silence
from tests.services import until

SOON = timedelta(minutes=1)
URL = settings.CLUSTER.nats_url


async def answer_nothing(client: Client, message: Msg) -> None:
    await message.respond(b"")


def test_a_request_returns_what_the_node_answers(bus: NatsBus, subject: str) -> None:
    with responding(URL, subject):
        assert bus.request(subject, b"hello", timeout=SOON) == b"hello"


def test_an_empty_answer_is_an_answer(bus: NatsBus, subject: str) -> None:
    with responding(URL, subject, answer_nothing):
        assert bus.request(subject, b"", timeout=SOON) == b""


def test_nobody_listening_is_told_at_once(bus: NatsBus, subject: str) -> None:
    began = time.monotonic()
    with pytest.raises(NodeUnreachable, match=subject):
        bus.request(subject, b"", timeout=timedelta(minutes=15))
    assert time.monotonic() - began < 60


def test_a_node_that_took_the_request_and_says_nothing_is_silent(
    bus: NatsBus, subject: str
) -> None:
    with responding(URL, subject, silence) as heard:
        with pytest.raises(NodeSilent):
            bus.request(subject, b"?", timeout=timedelta(seconds=0.2))
        until(lambda: heard == [b"?"])


def test_what_is_published_arrives(bus: NatsBus, subject: str) -> None:
    with responding(URL, subject, silence) as heard:
        bus.publish(subject, b"stop")
        until(lambda: heard == [b"stop"])


def test_publishing_needs_no_listener(bus: NatsBus, subject: str) -> None:
    bus.publish(subject, b"")


def test_many_threads_get_their_own_answers(bus: NatsBus, subject: str, patient: None) -> None:
    def ask(number: int) -> bytes:
        return bus.request(subject, str(number).encode(), timeout=SOON)

    with responding(URL, subject), ThreadPoolExecutor(50) as pool:
        assert list(pool.map(ask, range(500))) == [str(n).encode() for n in range(500)]


@pytest.mark.django_db(transaction=True)
def test_no_network_in_a_transaction(bus: NatsBus, subject: str) -> None:
    with transaction.atomic():
        with pytest.raises(RuntimeError, match="transaction"):
            bus.request(subject, b"", timeout=SOON)
        with pytest.raises(RuntimeError, match="transaction"):
            bus.publish(subject, b"")
    bus.publish(subject, b"")


@pytest.mark.parametrize("subject", ["", "two words", "line\r\nPUB other 0\r\n"])
def test_a_malformed_subject_is_a_bug_and_sends_nothing(bus: NatsBus, subject: str) -> None:
    with pytest.raises(ValueError, match="subject"):
        bus.request(subject, b"", timeout=SOON)


def test_a_payload_beyond_the_servers_limit_is_a_bug(bus: NatsBus) -> None:
    with pytest.raises(ValueError, match="payload"):
        bus.publish("test.big", bytes(1024 * 1024 + 1))


def test_the_process_shares_one_connection_made_on_demand(server: Server) -> None:
    bus = NatsBus(server.settings)
    assert server.connections() == []
    until(lambda: bus.status().connected)
    with ThreadPoolExecutor(20) as pool:
        list(pool.map(lambda _: bus.publish("test.any", b""), range(100)))
    assert len(server.connections()) == 1
    bus.close()
    until(lambda: server.connections() == [])


def test_the_default_bus_is_one_for_all() -> None:
    assert default_bus() is default_bus()


@pytest.mark.parametrize(
    "wrong",
    [
        {"nats_url": "http://clustermgr:hush@host"},
        {"nats_url": "nats://clustermgr:hu/sh@host:4222"},
        {"nats_url": "nats://"},
        {"nats_cert": "/a.pem"},
        {"nats_key": "/a.key"},
    ],
)
def test_settings_that_can_never_work_are_refused_without_secrets(wrong: dict[str, str]) -> None:
    with pytest.raises(ImproperlyConfigured) as refusal:
        NatsBus(ClusterSettings(**wrong))  # type: ignore[arg-type]
    assert "hu" not in str(refusal.value)
