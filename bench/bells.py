"""1,000 changes of capacity while rules starve: what they cost whoever makes them, and in ticks."""

import time
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

from django.db import connection

from bench import harness, planning
from clustermgr import bootstrap
from nodes.models import BackendNode
from nodes.services import announce
from scheduling.models import ModelSchedulingConfig

STARVING = 50
AT_ONCE = 8


def run() -> None:
    bootstrap.install_broker()
    planning.fill()
    planning.satisfy()
    names = ModelSchedulingConfig.objects.order_by("model_name").values("model_name")[:STARVING]
    ModelSchedulingConfig.objects.filter(model_name__in=names).update(
        unsatisfiable_since=planning.NOW,
        unsatisfiable_reason="No node matches.",
        selector="no=where",
        min_replicas=1,
    )
    nodes = list(BackendNode.objects.values_list("pk", flat=True))
    started = time.perf_counter()
    with ThreadPoolExecutor(AT_ONCE) as crowd:
        shares = [nodes[number::AT_ONCE] for number in range(AT_ONCE)]
        list(crowd.map(_tell, shares))
    took = time.perf_counter() - started
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pgmq.q_ticks")
        (ticks,) = cursor.fetchone()
    tick = harness.milliseconds(planning.tick)
    print(f"{len(nodes)} changes of capacity, {STARVING} rules starve, {AT_ONCE} at once")
    header = ("told in ms", "each ms", "ticks rung", "a tick ms", "ticking for ms")
    row = (1000 * took, 1000 * took * AT_ONCE / len(nodes), ticks, tick, ticks * tick)
    harness.table(header, [row])


def _tell(nodes: list[UUID]) -> None:
    for node in nodes:
        announce.capacity_changed(node)
    connection.close()
