"""Figures for Prometheus, correct over many processes."""

import os
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
from django.db import connection
from django.db.models import Count
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import REGISTRY, Collector

from backendops.models import PendingBackendOp
from backendops.states import OUTSTANDING, OpState

STUCK_AFTER = timedelta(minutes=5)

TASK_SECONDS = Histogram(
    "clustermgr_task_seconds", "How long Celery tasks took.", ["task", "outcome"]
)
HTTP_SECONDS = Histogram(
    "clustermgr_http_seconds", "How long requests took.", ["method", "route", "status"]
)


class TickCollector(Collector):
    """When each tick last ran: from rows, hence the same from every process."""

    def collect(self) -> Iterator[Metric]:
        age = GaugeMetricFamily("clustermgr_tick_age_seconds", "Since its start.", labels=["tick"])
        runs = CounterMetricFamily("clustermgr_tick_runs", "Starts.", labels=["tick"])
        failures = CounterMetricFamily("clustermgr_tick_failures", "Failures.", labels=["tick"])
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT name, extract(epoch FROM now() - started_at)::float, runs, failures"
                " FROM clustermgr_tick"
            )
            for name, seconds, started, failed in cursor.fetchall():
                age.add_metric([name], seconds)
                runs.add_metric([name], started)
                failures.add_metric([name], failed)
        return iter([age, runs, failures])


class QueueCollector(Collector):
    """What waits in the broker, when the broker is pgmq in our own database."""

    def collect(self) -> Iterator[Metric]:
        waiting = GaugeMetricFamily("clustermgr_queue_messages", "Waiting.", labels=["queue"])
        oldest = GaugeMetricFamily(
            "clustermgr_queue_oldest_seconds", "Age of the oldest.", labels=["queue"]
        )
        with connection.cursor() as cursor:
            cursor.execute("SELECT to_regclass('pgmq.meta') IS NOT NULL")
            row = cursor.fetchone()
            if row and row[0]:
                cursor.execute(
                    "SELECT queue_name, queue_length, coalesce(oldest_msg_age_sec, 0)"
                    " FROM pgmq.metrics_all() WHERE queue_name IN ('ticks', 'nodeops')"
                )
                for name, length, seconds in cursor.fetchall():
                    waiting.add_metric([name], length)
                    oldest.add_metric([name], seconds)
        return iter([waiting, oldest])


class OpCollector(Collector):
    """Orders by state, and how many of them nobody works on: that should be none."""

    def collect(self) -> Iterator[Metric]:
        ops = GaugeMetricFamily("clustermgr_ops", "Orders to nodes.", labels=["state"])
        rows = PendingBackendOp.objects.order_by().filter(state__in=[*OUTSTANDING, OpState.DEAD])
        for state, count in rows.values_list("state").annotate(count=Count("pk")):
            ops.add_metric([state], count)
        stuck = PendingBackendOp.objects.stuck(datetime.now(UTC), grace=STUCK_AFTER).count()
        overdue = GaugeMetricFamily("clustermgr_ops_stuck", "Orders nobody works on.", stuck)
        return iter([ops, overdue])


class ProcessCollector(Collector):
    """Memory and CPU of every process of ours that keeps figures."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory

    def collect(self) -> Iterator[Metric]:
        memory = GaugeMetricFamily(
            "clustermgr_process_resident_bytes", "Resident memory.", labels=["pid", "part"]
        )
        cpu = CounterMetricFamily(
            "clustermgr_process_cpu_seconds", "User and system time.", labels=["pid", "part"]
        )
        for pid in self._pids():
            try:
                process = psutil.Process(pid)
                part = process.environ().get("CLUSTER_PART", "")
                memory.add_metric([str(pid), part], process.memory_info().rss)
                cpu.add_metric([str(pid), part], sum(process.cpu_times()[:2]))
            except psutil.Error:  # gone since, or another user's
                continue
        return iter([memory, cpu])

    def _pids(self) -> Iterable[int]:
        if self._directory is None:
            return [os.getpid()]
        names = (re.search(r"_(\d+)\.db$", path.name) for path in self._directory.glob("*.db"))
        return sorted({int(name.group(1)) for name in names if name})


def exposition() -> bytes:
    """Everything, in Prometheus' text format."""
    configured = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    registry = CollectorRegistry()
    if configured:
        MultiProcessCollector(registry, path=configured)  # type: ignore[no-untyped-call]
    else:
        registry.register(REGISTRY)
    registry.register(ProcessCollector(Path(configured) if configured else None))
    registry.register(TickCollector())
    registry.register(QueueCollector())
    registry.register(OpCollector())
    return generate_latest(registry)
