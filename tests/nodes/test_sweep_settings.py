from dataclasses import replace
from datetime import timedelta

import pytest
from celery import current_app
from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured
from pytest_django import Settings

from clustermgr.beat import beat_schedule
from clustermgr.conf import ClusterSettings


def complaints() -> list[str]:
    return [message.id for message in run_checks() if message.id == "clustermgr.E003"]


@pytest.mark.parametrize(
    "changes",
    [
        {"heartbeat_stale_after": timedelta(seconds=20)},
        {"sweep_every": timedelta(seconds=60)},
        {"sweep_hold_fraction": 1.5},
    ],
)
def test_knobs_that_would_declare_healthy_nodes_dead_stop_the_start(
    settings: Settings, changes: dict[str, object]
) -> None:
    assert complaints() == []
    settings.CLUSTER = replace(settings.CLUSTER, **changes)
    assert complaints() == ["clustermgr.E003"]


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "many", ""])
@pytest.mark.parametrize(
    "name",
    ["SWEEP_EVERY", "SWEEP_HOLD_FRACTION", "OFFLINE_PER_SECOND", "OFFLINE_BURST", "FLAP_LIMIT"],
)
def test_a_knob_that_is_no_positive_number_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=f"CLUSTER_{name}"):
        ClusterSettings.from_env({f"CLUSTER_{name}": text})


def test_the_knobs_are_read_from_the_environment() -> None:
    knobs = ClusterSettings.from_env(
        {"CLUSTER_SWEEP_HOLD_FRACTION": "0.7", "CLUSTER_OFFLINE_BURST": "5"}
    )
    assert (knobs.sweep_hold_fraction, knobs.offline_burst) == (0.7, 5)


def test_the_sweep_ticks_and_its_task_exists() -> None:
    entry = beat_schedule(ClusterSettings())["nodes.sweep_stale"]
    assert entry["schedule"] == timedelta(seconds=15)
    assert entry["options"]["expires"] == 15
    current_app.loader.import_default_modules()
    assert "nodes.sweep_stale" in current_app.tasks
