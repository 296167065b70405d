from datetime import timedelta
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

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
