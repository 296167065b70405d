from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from clustermgr import checks
from clustermgr.conf import ClusterSettings


def test_nothing_set_gives_the_safe_defaults() -> None:
    cluster = ClusterSettings.from_env({})
    assert cluster.https
    assert not cluster.auto_approve_nodes
    assert cluster.registration_token == ""


def test_each_knob_is_read_by_its_own_type() -> None:
    cluster = ClusterSettings.from_env(
        {"CLUSTER_AUTO_APPROVE_NODES": "Yes", "CLUSTER_PULSE_EVERY": "2.5", "CLUSTER_HTTPS": "off"}
    )
    assert cluster.auto_approve_nodes
    assert cluster.pulse_every == timedelta(seconds=2.5)
    assert not cluster.https


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CLUSTER_AUTO_APPROVE_NODES", "maybe"),
        ("CLUSTER_PULSE_EVERY", "soon"),
        ("CLUSTER_PULSE_EVERY", "-1"),
        ("CLUSTER_PULSE_EVERY", "0"),
        ("CLUSTER_PULSE_EVERY", "nan"),
        ("CLUSTER_PULSE_EVERY", "1e30"),
    ],
)
def test_a_value_that_does_not_parse_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=name):
        ClusterSettings.from_env({name: value})


def test_a_secret_may_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("from-a-file\n")
    cluster = ClusterSettings.from_env({"CLUSTER_REGISTRATION_TOKEN_FILE": str(path)})
    assert cluster.registration_token == "from-a-file"


def test_an_unreadable_secret_file_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(ImproperlyConfigured, match="REGISTRATION_TOKEN_FILE"):
        ClusterSettings.from_env({"CLUSTER_REGISTRATION_TOKEN_FILE": str(tmp_path / "absent")})


def test_secrets_do_not_show_in_the_repr() -> None:
    cluster = ClusterSettings.from_env(
        {"CLUSTER_REGISTRATION_TOKEN": "hush", "CLUSTER_NATS_URL": "nats://u:hush@host"}
    )
    assert "hush" not in repr(cluster)


@pytest.mark.parametrize(
    ("text", "seconds"), [("5m", 300), ("1h30m", 5400), ("1.5s", 1.5), ("7", 7)]
)
def test_a_duration_may_be_written_as_go_does(text: str, seconds: float) -> None:
    cluster = ClusterSettings.from_env({"CLUSTER_PULSE_EVERY": text})
    assert cluster.pulse_every == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["5 m", "m", "5m!", "0s", "1d"])
def test_what_go_would_not_read_either_is_refused(text: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="CLUSTER_PULSE_EVERY"):
        ClusterSettings.from_env({"CLUSTER_PULSE_EVERY": text})


def test_localais_names_count_unless_ours_say_otherwise() -> None:
    theirs = {
        "LOCALAI_DISTRIBUTED_PREFIX_CACHE": "false",
        "LOCALAI_DISTRIBUTED_PREFIX_CACHE_TTL": "10m",
    }
    cluster = ClusterSettings.from_env(theirs)
    assert not cluster.prefix_cache
    assert cluster.prefix_cache_ttl == timedelta(minutes=10)
    assert ClusterSettings.from_env({**theirs, "CLUSTER_PREFIX_CACHE": "true"}).prefix_cache
    with pytest.raises(ImproperlyConfigured, match="LOCALAI_DISTRIBUTED_PREFIX_CACHE_TTL"):
        ClusterSettings.from_env({"LOCALAI_DISTRIBUTED_PREFIX_CACHE_TTL": "0s"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("route_policy", "random"),
        ("route_policy", ""),
        ("balance_rel_threshold", 0.5),
        ("min_prefix_match", 1.5),
    ],
)
def test_routing_that_makes_no_sense_is_told_at_the_start(
    settings: Any, name: str, value: object
) -> None:
    assert checks.routing_makes_sense() == []
    settings.CLUSTER = replace(settings.CLUSTER, **{name: value})
    (told,) = checks.routing_makes_sense()
    assert name.upper() in told.msg
