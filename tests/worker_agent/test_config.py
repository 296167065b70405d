from datetime import timedelta
from pathlib import Path

import pytest

from worker.config import BadConfig, Config
from worker.machine import Gallery

LEAST = {"LOCALAI_REGISTER_TO": "http://manager:8000/", "LOCALAI_NATS_URL": "nats://bus:4222"}


def load(*arguments: str, **env: str) -> Config:
    return Config.load(arguments, {**LEAST, **env})


def test_a_unit_file_of_localai_works_unchanged() -> None:
    config = load(
        LOCALAI_ADDR="gpu-a.example.com:50100",
        LOCALAI_NODE_NAME="gpu-a",
        LOCALAI_REGISTRATION_TOKEN="s3cret",
        LOCALAI_HEARTBEAT_INTERVAL="1m30s",
        LOCALAI_NODE_LABELS="tier=fast, rack=7",
        LOCALAI_MAX_REPLICAS_PER_MODEL="3",
        LOCALAI_VRAM_BUDGET="80%",
        LOCALAI_GRPC_MAX_PORT="50200",
        LOCALAI_NATS_REQUIRE_AUTH="TRUE",
        MODELS_PATH="/srv/models",
        BACKEND_GALLERIES='[{"url":"https://g","name":"localai"}]',
        LOCALAI_STORAGE_URL="ours to ignore",
    )
    assert config.register_to == "http://manager:8000"
    assert (config.base_port, config.top_port) == (50_100, 50_200)
    assert config.advertised == "gpu-a.example.com:50100"
    assert config.http_bind == ("0.0.0.0", 50_099)
    assert config.http_advertised == "gpu-a.example.com:50099"
    assert config.heartbeat_interval == timedelta(seconds=90)
    assert config.node_labels == {"tier": "fast", "rack": "7"}
    assert (config.max_replicas_per_model, config.vram_budget) == (3, "80%")
    assert config.nats_require_auth is True
    assert config.models == Path("/srv/models")
    assert config.backend_galleries == (Gallery(name="localai", url="https://g"),)


def test_defaults_are_localais() -> None:
    config = load()
    assert config.node_name
    assert (config.base_port, config.top_port) == (50_051, 65_535)
    assert config.http_bind == ("0.0.0.0", 50_050)
    assert config.advertised.endswith(":50051")
    assert config.heartbeat_interval == timedelta(seconds=10)


def test_a_worker_started_in_a_checkout_litters_only_one_folder() -> None:
    config = load()
    assert {config.backends.parts[0], config.models.parts[0]} == {".worker"}


def test_a_flag_beats_the_environment() -> None:
    config = load("--node-name", "by-flag", "--nats-require-auth", LOCALAI_NODE_NAME="by-env")
    assert (config.node_name, config.nats_require_auth) == ("by-flag", True)


def test_ours_have_their_own_prefix() -> None:
    config = load(
        WORKER_DOWNLOAD_RATE="5MB", WORKER_STATE_DIR="/srv/worker", WORKER_PRETEND_VRAM="24GiB"
    )
    assert config.download_rate == 5_000_000
    assert config.backends == Path("/srv/worker/backends")
    assert config.pretend_vram == 24 * 2**30


def test_a_token_may_come_from_a_file_and_shows_nowhere(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    config = load(LOCALAI_REGISTRATION_TOKEN_FILE=str(tmp_path / "token"))
    assert config.registration_token == "s3cret"
    assert "s3cret" not in repr(config)


def test_a_port_range_upside_down_is_ignored_as_localai_does() -> None:
    assert load(LOCALAI_GRPC_MAX_PORT="100").top_port == 65_535


@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        ({"LOCALAI_REGISTER_TO": ""}, "LOCALAI_REGISTER_TO is required"),
        ({"LOCALAI_REGISTER_TO": "manager:8000"}, "LOCALAI_REGISTER_TO must look like https://"),
        ({"LOCALAI_NATS_URL": ""}, "LOCALAI_NATS_URL is required"),
        ({"LOCALAI_NATS_URL": "http://bus"}, "LOCALAI_NATS_URL must look like nats://"),
        ({"LOCALAI_ADDR": "no-port"}, "LOCALAI_ADDR must look like host:50051"),
        ({"LOCALAI_ADDR": "h:70000"}, "LOCALAI_ADDR must look like"),
        ({"LOCALAI_HEARTBEAT_INTERVAL": "soon"}, "HEARTBEAT_INTERVAL must be a duration"),
        ({"LOCALAI_HEARTBEAT_INTERVAL": "0s"}, "HEARTBEAT_INTERVAL must be longer"),
        ({"LOCALAI_HEARTBEAT_INTERVAL": "nan"}, "HEARTBEAT_INTERVAL must be longer"),
        ({"LOCALAI_NODE_LABELS": "fast"}, "LOCALAI_NODE_LABELS must look like key=value"),
        ({"LOCALAI_NODE_LABELS": "a b=c"}, "LOCALAI_NODE_LABELS must look like key=value"),
        ({"LOCALAI_MAX_REPLICAS_PER_MODEL": "0"}, "must be at least 1"),
        ({"LOCALAI_MAX_REPLICAS_PER_MODEL": "-1"}, "must be a whole number"),
        ({"LOCALAI_NATS_REQUIRE_AUTH": "perhaps"}, "must be true or false"),
        ({"LOCALAI_DISTRIBUTED_REQUIRE_AUTH": "1"}, "LOCALAI_REGISTRATION_TOKEN is required"),
        ({"LOCALAI_NATS_JWT": "x"}, "need each other"),
        ({"LOCALAI_NATS_TLS_CERT": "/x"}, "need each other"),
        ({"LOCALAI_NATS_TLS_CA": "/no/such/ca.pem"}, "/no/such/ca.pem does not exist"),
        ({"LOCALAI_BACKEND_GALLERIES": "{"}, "must be a JSON list of galleries"),
        ({"LOCALAI_REGISTRATION_TOKEN_FILE": "/no/such/file"}, "cannot read /no/such/file"),
        ({"WORKER_DOWNLOAD_RATE": "fast"}, "WORKER_DOWNLOAD_RATE must be a size"),
        ({"WORKER_LOG_FORMAT": "xml"}, "WORKER_LOG_FORMAT must be text or json"),
    ],
)
def test_a_bad_value_is_refused_with_its_name(env: dict[str, str], sentence: str) -> None:
    with pytest.raises(BadConfig, match=sentence):
        load(**env)
