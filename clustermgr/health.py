"""Are we alive, and could we do our work? Each part with its age and reason."""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import datetime

import psycopg
from django.conf import settings
from django.db import OperationalError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from kombu import Connection
from kombu.exceptions import KombuError

from clustermgr.lib.bus import default_bus
from clustermgr.lib.errors import NotConnected
from nodes.api.door import STORING

log = logging.getLogger(__name__)

ANSWER_WITHIN = 2  # seconds; a check that takes longer has failed
# Many probes a second (load balancers, monitoring) share one look.
FRESH_FOR = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One part: is it well, since when do we know, and what is wrong otherwise."""

    ok: bool
    reason: str
    age_seconds: float | None = None


def database(now: datetime) -> Check:
    with _connect(settings.DATABASE_URL) as connection:
        connection.execute("SELECT 1")
    return Check(ok=True, reason="PostgreSQL answers.")


def broker(now: datetime) -> Check:
    url = settings.CELERY_BROKER_URL
    if not url.startswith("pgmq://"):
        with Connection(url, connect_timeout=ANSWER_WITHIN) as link:
            link.ensure_connection(max_retries=1, timeout=ANSWER_WITHIN)
        return Check(ok=True, reason="The broker answers.")
    with _connect("postgresql://" + url.removeprefix("pgmq://")) as connection:
        connection.execute("SELECT 1 FROM pgmq.meta LIMIT 1")
    return Check(ok=True, reason="pgmq answers.")


def nats(now: datetime) -> Check:
    status = default_bus().status()
    if not status.connected:
        return Check(ok=False, reason="NATS does not answer.")
    try:
        # A frozen server keeps its connections: only its confirmation tells that it lives.
        default_bus().publish("clustermgr.readyz", b"")
    except NotConnected:
        return Check(ok=False, reason="NATS accepts connections but does not answer.")
    return Check(ok=True, reason="NATS answers.")


def heartbeats(now: datetime) -> Check:
    """Whether this process can store the heartbeats it accepts."""
    seconds = STORING.failing_for()
    if seconds:
        return Check(
            ok=False, age_seconds=seconds, reason=f"Not stored for {seconds:.0f} s; none is lost."
        )
    return Check(ok=True, reason="Heartbeats are stored.")


def beat(now: datetime) -> Check:
    """The age of the last pulse: only a live beat, broker and tick worker together make one."""
    with _connect(settings.DATABASE_URL) as connection:
        row = connection.execute(
            "SELECT finished_at FROM clustermgr_tick WHERE name = 'clustermgr.pulse'"
        ).fetchone()
    if row is None or row[0] is None:
        return Check(ok=False, reason="No tick has run yet: beat or the ticks worker is not up.")
    age = (now - row[0]).total_seconds()
    limit = 3 * settings.CLUSTER.pulse_every.total_seconds() + 5
    if age > limit:
        return Check(
            ok=False,
            age_seconds=age,
            reason=f"The last tick ran {age:.0f} s ago: beat or the ticks worker is not running.",
        )
    return Check(ok=True, age_seconds=age, reason="Time passes.")


CHECKS: dict[str, Callable[[datetime], Check]] = {
    "database": database,
    "nats": nats,
    "broker": broker,
    "beat": beat,
    "heartbeats": heartbeats,
}
REFUSALS = {
    "database": "PostgreSQL does not answer.",
    "broker": "The Celery broker does not answer.",
    "beat": "Unknown while PostgreSQL does not answer.",
}


class Examiner:
    """Runs all checks at once, and remembers when each was last well."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._looked_at = float("-inf")
        self._report: dict[str, Check] = {}
        self._well_at: dict[str, float] = {}
        self._began = time.monotonic()

    def report(self, now: datetime) -> dict[str, Check]:
        with self._lock:
            if time.monotonic() - self._looked_at > FRESH_FOR:
                with ThreadPoolExecutor(len(CHECKS)) as pool:
                    looks = {name: pool.submit(self._look, name, now) for name in CHECKS}
                    self._report = {name: look.result() for name, look in looks.items()}
                self._looked_at = time.monotonic()
            return self._report

    def _look(self, name: str, now: datetime) -> Check:
        try:
            check = CHECKS[name](now)
        except (psycopg.Error, OperationalError, OSError, KombuError) as problem:
            # The reason is public: no host, no user name. The log has the rest, once.
            if self._report.get(name) is None or self._report[name].ok:
                log.warning("health check failed", extra={"check": name, "problem": str(problem)})
            check = Check(ok=False, reason=REFUSALS[name])
        if check.ok:
            self._well_at[name] = time.monotonic()
        if check.age_seconds is not None:
            return check
        since = self._well_at.get(name, self._began)
        age = round(time.monotonic() - since, 1)
        return Check(ok=check.ok, reason=check.reason, age_seconds=age)


_examiner = Examiner()


def current_report(now: datetime) -> dict[str, Check]:
    """All checks, at most a second old."""
    return _examiner.report(now)


def healthz(request: HttpRequest) -> HttpResponse:
    """Alive; asgi.py answers this before Django is asked, WSGI servers land here."""
    return HttpResponse("ok", content_type="text/plain")


def readyz(request: HttpRequest) -> JsonResponse:
    """200 when every part is well, 503 otherwise; the body is the same."""
    checks = current_report(timezone.now())
    well = all(check.ok for check in checks.values())
    body = {
        "status": "ok" if well else "failing",
        "checks": {name: asdict(check) for name, check in checks.items()},
    }
    response = JsonResponse(body, status=200 if well else 503)
    # The failing check was logged with its cause; Django would add a line a probe.
    response._has_been_logged = True  # type: ignore[attr-defined]
    return response


def _connect(url: str) -> psycopg.Connection:
    milliseconds = ANSWER_WITHIN * 1000
    return psycopg.connect(
        url,
        autocommit=True,
        connect_timeout=ANSWER_WITHIN,
        options=f"-c statement_timeout={milliseconds}",
    )
