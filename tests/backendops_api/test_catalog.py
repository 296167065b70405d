import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured
from pytest_django import Settings

from backendops import galleries as parsing
from backendops.models import GalleryBackend, GalleryCheck
from backendops.orders import GalleryRef, Order
from backendops.services import catalog
from backendops.states import Verb
from clustermgr.checks import galleries_can_be_reached
from clustermgr.conf import ClusterSettings, GallerySource
from clustermgr.lib.errors import InvalidInput
from tests.backendops_api.conftest import Galleries, publish
from tests.factories import NOW

pytestmark = pytest.mark.django_db
LATER = NOW + timedelta(hours=6)


BODIES = {
    "/index.yaml": b"- {name: llama-cpp, version: '1'}",
    "/huge": b"- {name: x}\n" * (parsing.LARGEST_INDEX // 10),
}
REDIRECTS = {
    "/moved": "/index.yaml",
    "/round": "/round",
    "/to-a-file": "file:///etc/hostname",
    "/to-ftp": "ftp://example.org/x",
}


class Gallery(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/slow":
            self._send(200, b"")
            while not self.server.over.wait(0.02):  # type: ignore[attr-defined]
                self.wfile.write(b"#" * 70_000)
        elif self.path in BODIES:
            self._send(200, BODIES[self.path])
        elif self.path in REDIRECTS:
            self._send(302, b"", Location=REDIRECTS[self.path])
        else:
            self._send(404, b"")

    def _send(self, code: int, body: bytes, **headers: str) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Gallery) as http:
        http.over = threading.Event()  # type: ignore[attr-defined]
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.over.set()  # type: ignore[attr-defined]
        http.shutdown()


@contextmanager
def configured(settings: Settings, *, within: int = 30, **named: str) -> Iterator[None]:
    sources = tuple(GallerySource(name=name, url=url) for name, url in named.items())
    settings.CLUSTER = replace(
        settings.CLUSTER, backend_galleries=sources, gallery_timeout=timedelta(seconds=within)
    )
    yield


def test_a_gallery_is_read_over_http_and_through_a_redirect(
    settings: Settings, server: str
) -> None:
    with configured(settings, a=f"{server}/index.yaml", b=f"{server}/moved"):
        assert catalog.check(now=NOW) == 2
    assert set(GalleryBackend.objects.values_list("gallery", "name", "version")) == {
        ("a", "llama-cpp", "1"),
        ("b", "llama-cpp", "1"),
    }


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/nothing", "404"),
        ("/to-a-file", "is not allowed"),
        ("/to-ftp", "from http to ftp"),
        ("/round", "infinite loop"),
        ("/huge", "larger than 8 MiB"),
        ("/slow", "longer than 1 s"),
    ],
)
def test_one_bad_gallery_is_told_and_spoils_no_other(
    settings: Settings, server: str, path: str, told: str
) -> None:
    within = 1 if path == "/slow" else 30
    with configured(settings, within=within, bad=server + path, good=f"{server}/index.yaml"):
        assert catalog.check(now=NOW) == 1
    assert told in GalleryCheck.objects.get(gallery="bad").error
    assert GalleryCheck.objects.get(gallery="bad").checked_at is None
    assert GalleryBackend.objects.get().gallery == "good"


def test_what_is_known_of_a_gallery_stays_when_it_cannot_be_read(
    galleries: Galleries, tmp_path: Path
) -> None:
    galleries(main=[{"name": "llama-cpp"}])
    (tmp_path / "main.yaml").unlink()
    assert catalog.check(now=LATER) == 0
    check = GalleryCheck.objects.get()
    assert (check.checked_at, check.tried_at) == (NOW, LATER)
    assert "No such file" in check.error
    assert GalleryBackend.objects.count() == 1


def test_a_gallery_is_read_again_when_its_time_has_come_or_soon_after_it_failed(
    galleries: Galleries, tmp_path: Path
) -> None:
    galleries(main=[{"name": "a"}], late=[{"name": "b"}])
    (tmp_path / "late.yaml").unlink()
    catalog.check(now=NOW + timedelta(seconds=1))
    (tmp_path / "late.yaml").write_text("[{name: c}]")
    soon = NOW + timedelta(seconds=30)
    assert catalog.check_due(now=soon) == 0
    assert catalog.check_due(now=NOW + timedelta(minutes=2)) == 1
    assert set(GalleryBackend.objects.values_list("name", flat=True)) == {"a", "c"}
    assert catalog.check_due(now=NOW + timedelta(minutes=4)) == 0
    assert catalog.check_due(now=NOW + timedelta(hours=6, minutes=3)) == 2


def test_entries_and_galleries_that_are_gone_go(galleries: Galleries) -> None:
    galleries(main=[{"name": "a"}, {"name": "b", "version": "1"}], other=[{"name": "c"}])
    galleries(main=[{"name": "b", "version": "2"}, 17])
    assert list(GalleryBackend.objects.values_list("name", "version")) == [("b", "2")]
    assert GalleryCheck.objects.get().error == "Entry 2: it is not an object."


def test_a_gallerys_name_before_the_backend_is_looked_up(galleries: Galleries) -> None:
    galleries(main=[{"name": "llama-cpp"}], edge=[{"name": "llama-cpp"}, {"name": "new"}])
    asked = catalog.resolve(Order.of(Verb.INSTALL, backend="edge@llama-cpp"))
    assert (asked.backend, [ref.name for ref in asked.galleries]) == ("llama-cpp", ["edge"])
    with pytest.raises(InvalidInput, match="no gallery nowhere; configured: main, edge"):
        catalog.resolve(Order.of(Verb.INSTALL, backend="nowhere@llama-cpp"))
    with pytest.raises(InvalidInput, match="<gallery>@<name>"):
        catalog.resolve(Order.of(Verb.INSTALL, backend="edge@"))


def test_a_plain_name_comes_from_the_first_gallery_that_has_it(
    galleries: Galleries, settings: Settings
) -> None:
    galleries(main=[{"name": "llama-cpp"}], edge=[{"name": "llama-cpp"}, {"name": "new"}])
    publish(settings)
    first = [catalog.resolve(Order.of(Verb.INSTALL, backend=name)) for name in ("llama-cpp", "new")]
    assert [ref.name for order in first for ref in order.galleries] == ["main", "edge"]


def test_a_gallery_in_our_own_files_is_not_sent_to_machines_that_lack_it(
    galleries: Galleries,
) -> None:
    galleries(main=[{"name": "llama-cpp"}])
    order = Order.of(Verb.INSTALL, backend="llama-cpp")
    assert catalog.resolve(order) == order


def test_what_needs_no_gallery_is_left_as_it_is(galleries: Galleries) -> None:
    galleries(main=[{"name": "llama-cpp"}])
    own = [{"name": "own", "url": "https://example.org"}]
    for order in (
        Order.of(Verb.INSTALL, backend="llama-cpp", galleries=own),
        Order.of(Verb.INSTALL, uri="https://example.org/llama-cpp.tar.gz"),
        Order.of(Verb.DELETE, backend="llama-cpp"),
        Order.of(Verb.INSTALL, backend="only-the-worker-knows"),
    ):
        assert catalog.resolve(order) == order
    deleted = catalog.resolve(Order.of(Verb.DELETE, backend="main@llama-cpp"))
    assert (deleted.backend, deleted.galleries) == ("llama-cpp", ())


def test_the_environment_names_galleries_as_localai_does() -> None:
    text = '[{"name": "main", "url": "https://example.org/index.yaml"}]'
    [source] = ClusterSettings.from_env({"CLUSTER_BACKEND_GALLERIES": text}).backend_galleries
    assert GalleryRef(name=source.name, url=source.url).name == "main"
    assert ClusterSettings.from_env({"CLUSTER_BACKEND_GALLERIES": ""}).backend_galleries == ()


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "{}x",
        "[1]",
        '["a"]',
        '[{"name": "a"}]',
        '[{"name": "", "url": "u"}]',
        '[{"name": "a", "url": 1}]',
        '[{"name": "a@b", "url": "u"}]',
        '[{"name": "a", "url": "u"}, {"name": "a", "url": "v"}]',
    ],
)
def test_galleries_that_make_no_sense_stop_the_process_with_their_name(text: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="CLUSTER_BACKEND_GALLERIES"):
        ClusterSettings.from_env({"CLUSTER_BACKEND_GALLERIES": text})


def test_an_address_that_cannot_be_read_is_told_at_the_start(settings: Settings) -> None:
    with configured(settings, a="oci://example.org/x", b="relative.yaml", c="/abs.yaml"):
        assert [problem.id for problem in galleries_can_be_reached()] == ["clustermgr.E005"] * 2
