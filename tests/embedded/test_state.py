import json
import stat
from pathlib import Path

import pytest

from clustermgr.embedded.state import AlreadyRunning, Secrets, open_data_dir, write_private


def test_secrets_are_made_once_and_kept(tmp_path: Path) -> None:
    assert Secrets.load(tmp_path, {}) == Secrets.load(tmp_path, {})


def test_the_environment_overrides_without_being_stored(tmp_path: Path) -> None:
    given = Secrets.load(tmp_path, {"CLUSTER_ADMIN_PASSWORD": "chosen"})
    assert given.admin_password == "chosen"
    assert "chosen" not in (tmp_path / "secrets.json").read_text()


def test_a_secret_may_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("from-a-file\n")
    env = {"CLUSTER_ADMIN_PASSWORD_FILE": str(tmp_path / "password")}
    assert Secrets.load(tmp_path, env).admin_password == "from-a-file"


def test_files_with_secrets_are_private(tmp_path: Path) -> None:
    Secrets.load(tmp_path, {})
    write_private(tmp_path / "run.json", {"api_token": "x"})
    for name in ("secrets.json", "run.json"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_a_data_directory_has_one_owner_at_a_time(tmp_path: Path) -> None:
    with open_data_dir(tmp_path), pytest.raises(AlreadyRunning):
        open_data_dir(tmp_path)
    open_data_dir(tmp_path).close()


def test_the_secrets_of_an_earlier_version_are_kept_and_its_passwords_dropped(
    tmp_path: Path,
) -> None:
    first = Secrets.load(tmp_path, {})
    path = tmp_path / "secrets.json"
    earlier = {"nats_password": "ours", "nats_worker_password": "theirs"}
    path.write_text(json.dumps({**json.loads(path.read_text()), **earlier}))
    assert Secrets.load(tmp_path, {}) == first
    assert "nats" not in path.read_text()
