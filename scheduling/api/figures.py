"""What callers were given, for /metrics: counted alike whichever way they came."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from prometheus_client import Counter, Histogram

from clustermgr.lib.errors import DomainError
from scheduling.routing.asks import Lease

LEASES = Counter("clustermgr_leases", "Leases granted, by the way the replica was found.", ["how"])
REFUSED = Counter("clustermgr_routes_refused", "Requests that got no replica.", ["code"])
TOOK = Histogram(
    "clustermgr_route_seconds",
    "From a request to its lease.",
    buckets=(0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5, 15, 60),
)


def granted(lease: Lease) -> None:
    LEASES.labels(how=lease.how).inc()


def refused(refusal: DomainError) -> None:
    REFUSED.labels(code=refusal.code).inc()


@contextmanager
def asked() -> Iterator[None]:
    """A request for a replica: how long it took, or why it got none."""
    began = monotonic()
    try:
        yield
    except DomainError as refusal:
        refused(refusal)
        raise
    TOOK.observe(monotonic() - began)
