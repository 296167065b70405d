import json

import pytest

from nodes.wire import LIST_REQUEST, NOTHING, RUNNING_MODELS_REQUEST
from tests.gateway.samples import GOLDEN, OURS, THEIRS, Message, golden

BODILESS = {
    "list.request": LIST_REQUEST,
    "running.request": RUNNING_MODELS_REQUEST,
    "node-stop": NOTHING,
}


@pytest.mark.parametrize(("name", "message"), OURS.items(), ids=OURS)
def test_our_bytes_are_the_agreed_ones_and_read_back(name: str, message: Message) -> None:
    assert message.encode() == golden(name)
    # repr, not ==: an address that must not be compared must still arrive
    assert repr(type(message).decode(golden(name))) == repr(message)


@pytest.mark.parametrize(("name", "message"), THEIRS.items(), ids=THEIRS)
def test_what_localai_sends_is_understood(name: str, message: Message) -> None:
    assert type(message).decode(golden(name)) == message


@pytest.mark.parametrize(("name", "payload"), BODILESS.items(), ids=BODILESS)
def test_a_message_without_content_has_agreed_bytes(name: str, payload: bytes) -> None:
    assert payload == golden(name)


def test_every_file_is_tested_and_is_json() -> None:
    files = {path.name.removesuffix(".json") for path in GOLDEN.iterdir()}
    assert files == OURS.keys() | THEIRS.keys() | BODILESS.keys()
    for name in files:
        json.loads(golden(name))


def test_galleries_travel_as_json_in_a_string() -> None:
    body = json.loads(golden("install.request.external"))
    assert [gallery["name"] for gallery in json.loads(body["backend_galleries"])] == [
        "localai",
        '"quoted" & <odd>',
    ]
