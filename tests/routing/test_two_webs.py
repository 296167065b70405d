"""Two web processes on one database and one bus remember prompts together."""

import json
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.test import Client

from clustermgr import tokens
from nodes.models import NodeModel
from nodes.services import replicas
from tests.factories import NOW, make_model, make_node, make_replica
from tests.logs.served import web
from tests.services import until

pytestmark = pytest.mark.django_db(transaction=True)

CSRF = "x" * 32
PROMPTS = [f"You are assistant number {number}. " * 40 for number in range(8)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Web:
    """One process: as a program talks to it, and as an operator looks at it."""

    place: str
    secret: str
    session: str

    def route(self, prompt: str) -> str:
        """The replica that such a request gets; it is over at once."""
        lease = self._ask("POST", "/api/route", {"model": "llama", "prompt_prefix": prompt})
        self._ask("DELETE", f"/api/route/{lease['lease_id']}", {})
        replica: str = lease["replica"]["id"]
        return replica

    def knows(self, prompt: str) -> bool:
        """Whether the page for trying requests says so."""
        form = urllib.parse.urlencode({"model": "llama", "prompt": prompt, "do": "ask"})
        request = urllib.request.Request(
            f"http://{self.place}/admin/scheduling/modelloadinfo/try/",
            data=form.encode(),
            headers={
                "Cookie": f"sessionid={self.session}; csrftoken={CSRF}",
                "X-CSRFToken": CSRF,
            },
        )
        with urllib.request.urlopen(request, timeout=60) as reply:
            return "knows the prompt" in reply.read().decode()

    def _ask(self, method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(
            f"http://{self.place}{path}",
            data=json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.secret}"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=60) as reply:
            answer: dict[str, Any] = json.load(reply)
        return answer


@pytest.fixture
def webs(superuser: User, queued: list[Any]) -> Iterator[tuple[Web, Web]]:
    """Both up, and each known to hear the other."""
    make_model()
    for name in "abcd":
        make_replica(make_node(name))
    _, secret = tokens.issue(superuser, name="tests", now=NOW)
    browser = Client()
    browser.force_login(superuser)
    session = browser.cookies["sessionid"].value
    with web() as one, web() as other:
        a = Web(place=one, secret=secret, session=session)
        b = Web(place=other, secret=secret, session=session)
        until(lambda: _hears(b, a))
        until(lambda: _hears(a, b))
        yield a, b


def _hears(ear: Web, mouth: Web) -> bool:
    """What was said before the other listened is lost: so something new each time."""
    said = [f"{uuid4()} says {mouth.place}. " * 40 for _ in range(5)]
    for prompt in said:
        mouth.route(prompt)
    return any(map(ear.knows, said))


def test_the_same_prompt_goes_to_the_same_replica_from_both(webs: tuple[Web, Web]) -> None:
    a, b = webs
    went = {prompt: a.route(prompt) for prompt in PROMPTS}
    assert len(set(went.values())) > 1  # else it would prove nothing
    until(lambda: all(map(b.knows, PROMPTS)))
    assert {prompt: b.route(prompt) for prompt in PROMPTS} == went


def test_when_a_replica_goes_both_go_elsewhere_together(webs: tuple[Web, Web]) -> None:
    a, b = webs
    [prompt, *_] = PROMPTS
    first = a.route(prompt)
    until(lambda: b.knows(prompt))
    replicas.remove(NodeModel.objects.filter(pk=first), reason="tests")
    until(lambda: not a.knows(prompt) and not b.knows(prompt))
    second = b.route(prompt)
    assert second != first
    until(lambda: a.knows(prompt))
    assert a.route(prompt) == second
