from clustermgr.lib.bus import NatsBus
from tests.contract.nats_server import Server
from tests.services import until


def test_what_is_told_is_heard_in_order_while_the_block_runs(
    server: Server, own_bus: NatsBus
) -> None:
    heard: list[bytes] = []
    other = NatsBus(server.settings)
    words = [b"%d" % number for number in range(500)]
    with own_bus.listening("news", heard.append):
        until(lambda: _ears(server) == 1)
        other.publish_each([("news", word) for word in words])
        until(lambda: len(heard) == 500)
        assert heard == words
    until(lambda: _ears(server) == 0)
    other.publish("news", b"too late")
    other.close()
    assert len(heard) == 500


def test_a_listener_outlives_the_connection_and_may_come_before_it(server: Server) -> None:
    heard: list[bytes] = []
    server.stop()
    bus, other = NatsBus(server.settings), NatsBus(server.settings)
    with bus.listening("news", heard.append):
        for word in (b"one", b"two"):
            server.start()
            until(lambda: _ears(server) == 1)
            other.publish("news", word)
            until(lambda word=word: heard[-1:] == [word])  # type: ignore[misc]
            server.stop()
    bus.close()
    other.close()
    assert heard == [b"one", b"two"]


def _ears(server: Server) -> int:
    known = server.connections()
    return sum("news" in connection.get("subscriptions_list", []) for connection in known)
