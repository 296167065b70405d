import json
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from nats.aio.client import RawCredentials

from clustermgr.conf import ClusterSettings
from clustermgr.embedded.accounts import SHARED_HOME, Account, can_enter
from clustermgr.lib.bus import NatsBus
from clustermgr.lib.errors import NodeUnreachable
from clustermgr.lib.natsauth.claims import credentials_file
from tests.contract.responder import responding
from tests.embedded.running import ROOT, Up, all_gone, command_of
from tests.services import free_port, free_ports, until

pytestmark = pytest.mark.timeout(600)

KEYS = {
    "url",
    "nats_url",
    "nats_credentials",
    "database_url",
    "broker_url",
    "admin_user",
    "admin_password",
    "api_token",
    "registration_token",
}


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One running manager, in a directory that is nobody else's business.

    The tests below look at it, then break and mend it, and at last stop and kill it.
    """
    private = tmp_path_factory.mktemp("private")
    private.chmod(0o700)
    manager = Up(private / "data").start()
    yield manager
    if manager.process.poll() is None:
        manager.stop()
    secrets = json.loads((private / "data" / "secrets.json").read_text())
    # Where PostgreSQL lives when root's own directories are closed to it
    shutil.rmtree(SHARED_HOME / secrets["instance"], ignore_errors=True)


def test_ready_means_that_everything_is(up: Up) -> None:
    code, checks = up.readiness()
    assert code == 200
    assert set(checks) == {"database", "nats", "broker", "beat", "heartbeats"}
    assert up.get("/admin/login/")[0] == 200
    assert up.get("/healthz") == (200, "ok")


def test_a_private_directory_stays_private(up: Up) -> None:
    assert stat.S_IMODE(up.data_dir.parent.stat().st_mode) == 0o700


def test_run_json_is_complete_and_private(up: Up) -> None:
    run = up.run()
    assert set(run) == KEYS
    assert all(run.values())
    assert stat.S_IMODE((up.data_dir / "run.json").stat().st_mode) == 0o600
    assert up.get("/metrics", token=run["api_token"])[0] == 200


def test_no_secret_is_on_a_command_line_or_in_the_log(up: Up) -> None:
    run = up.run()
    seen = " ".join(command_of(process) for process in up.family())
    log = up.log.read_text()
    seeds = [path.read_text().strip() for path in (up.data_dir / "nats").glob("*.seed")]
    assert len(seeds) == 4
    secrets = [run[name] for name in ("database_url", "api_token", "registration_token")]
    for secret in (*secrets, *seeds):
        assert secret not in seen + log
    assert run["admin_password"] not in seen


def test_nobody_is_on_the_bus_without_credentials(up: Up) -> None:
    stranger = NatsBus(ClusterSettings(nats_url=up.run()["nats_url"]))
    until(lambda: "authorization violation" in stranger.status().reason.lower())
    stranger.close()


def test_a_worker_gets_its_credentials_and_is_cut_off_when_it_is_retired(up: Up) -> None:
    run = up.run()
    mine = {"name": "gpu-1", "address": "10.0.0.7:50051", "token": run["registration_token"]}
    node = up.post("/api/node/register", run["registration_token"], mine)
    assert (node["status"], "nats_jwt" in node) == ("pending", False)
    up.post(f"/api/nodes/{node['id']}/approve", run["api_token"], {})
    node = up.post("/api/node/register", run["registration_token"], mine)
    creds = RawCredentials(credentials_file(node["nats_jwt"], node["nats_user_seed"]))
    subject = f"nodes.{node['id']}.backend.list"
    with responding(run["nats_url"], subject, user_credentials=creds):
        us = ClusterSettings(nats_url=run["nats_url"], nats_credentials=run["nats_credentials"])
        bus = NatsBus(us)
        assert bus.request(subject, b"ask", timeout=timedelta(minutes=1)) == b"ask"
        up.post(f"/api/nodes/{node['id']}/retire", run["api_token"], {"reason": "sold"})
        until(lambda: _nobody_answers(bus, subject))
        bus.close()


def test_a_worker_of_ours_works_on_the_locked_bus(up: Up, tmp_path: Path) -> None:
    run, base = up.run(), free_ports(10)
    env = {
        "LOCALAI_REGISTER_TO": run["url"],
        "LOCALAI_REGISTRATION_TOKEN": run["registration_token"],
        "LOCALAI_NATS_URL": run["nats_url"],
        "LOCALAI_NATS_REQUIRE_AUTH": "true",
        "LOCALAI_NODE_NAME": "ours-1",
        "LOCALAI_ADDR": f"127.0.0.1:{base}",
        "LOCALAI_HTTP_ADDR": f"127.0.0.1:{free_port()}",
        "WORKER_STATE_DIR": str(tmp_path),
    }
    us = ClusterSettings(nats_url=run["nats_url"], nats_credentials=run["nats_credentials"])
    bus = NatsBus(us)
    worker = subprocess.Popen([sys.executable, "-m", "worker"], cwd=ROOT, env={**up.env, **env})
    try:
        until(lambda: _named(up, "ours-1") != [])
        [node] = _named(up, "ours-1")
        up.post(f"/api/nodes/{node['id']}/approve", run["api_token"], {})
        running = f"nodes.{node['id']}.models.running"
        until(lambda: not _nobody_answers(bus, running))
    finally:
        bus.close()
        worker.terminate()
        worker.wait(60)


def _named(up: Up, name: str) -> list[dict[str, str]]:
    nodes = json.loads(up.get("/api/nodes", token=up.run()["api_token"])[1])
    return [node for node in nodes if node["name"] == name]


def test_no_process_of_ours_asks_the_bus_for_more_than_it_may(up: Up) -> None:
    assert up.readiness()[0] == 200
    assert " Violation - Subject" not in up.log.read_text()


def _nobody_answers(bus: NatsBus, subject: str) -> bool:
    try:
        bus.request(subject, b"", timeout=timedelta(seconds=1))
    except NodeUnreachable:
        return True
    return False


def test_a_second_start_on_the_same_data_is_refused_in_a_sentence(up: Up) -> None:
    second = subprocess.run(
        [sys.executable, "manage.py", "up"],
        cwd=ROOT,
        env={**up.env, "CLUSTER_HTTP_PORT": str(free_port())},
        capture_output=True,
        text=True,
    )
    assert second.returncode == 1
    assert second.stdout.count("\n") == 1
    assert f"already runs on this data directory (process {up.process.pid})" in second.stdout
    assert up.readiness()[0] == 200


@pytest.mark.parametrize(("part", "check"), [("nats-server", "nats"), ("bin/postgres", "database")])
def test_a_killed_service_turns_readiness_red_and_then_everything_recovers(
    up: Up, part: str, check: str
) -> None:
    ours = up.ours()
    up.child(part).suspend()  # dead to its clients, and not yet restarted by the supervisor
    until(lambda: not up.readiness()[1][check]["ok"])
    assert up.readiness()[1][check]["reason"]
    up.child(part).kill()
    until(lambda: up.readiness()[0] == 200, seconds=180)
    assert all(process.is_running() for process in ours), "a process of ours had to be restarted"


def test_the_request_id_and_figures_of_all_processes_come_together(up: Up) -> None:
    token = up.run()["api_token"]

    def figures() -> str:
        return up.get("/metrics", token=token)[1]

    until(lambda: 'clustermgr_task_seconds_count{outcome="success"' in figures())
    until(lambda: 'clustermgr_queue_messages{queue="nodeops"} 0.0' in figures())
    text = figures()
    assert 'clustermgr_tick_age_seconds{tick="clustermgr.pulse"}' in text
    assert 'part="web"' in text
    assert 'part="ticks"' in text
    assert up.get("/metrics")[0] == 401


def test_data_survives_ctrl_c_and_kill_minus_nine_and_nothing_is_left_running(up: Up) -> None:
    first, family = up.run(), up.family()
    assert up.stop(signal.SIGINT) == 0
    assert all_gone(family)
    assert not up.announced()

    up.start()
    assert up.get("/metrics", token=first["api_token"])[0] == 200
    family = up.family()
    up.process.kill()
    up.process.wait(60)
    until(lambda: all_gone(family))

    (up.data_dir / "run.json").unlink()
    up.start()
    assert up.get("/metrics", token=first["api_token"])[0] == 200
    assert up.run()["admin_password"] == first["admin_password"]
    assert up.stop(signal.SIGTERM) == 0


@pytest.mark.parametrize("variable", ["CLUSTER_HTTP_PORT", "CLUSTER_NATS_PORT"])
def test_a_taken_port_is_named_with_its_variable(tmp_path: Path, variable: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        manager = Up(tmp_path / "data", **{variable: str(port)})
        manager.begin()
        assert manager.process.wait(60) == 1
    said = manager.log.read_text().strip().splitlines()
    assert len(said) == 1
    assert str(port) in said[0]
    assert variable in said[0]


def test_external_services_replace_the_embedded_ones(tmp_path: Path) -> None:
    urls = {name: os.environ[name] for name in ("CLUSTER_NATS_URL", "CELERY_BROKER_URL")}
    manager = Up(tmp_path / "data", DATABASE_URL=os.environ["DATABASE_URL"], **urls).start()
    try:
        commands = [command_of(process) for process in manager.family()]
        assert not [line for line in commands if "postgres -D" in line or "nats-server" in line]
        assert manager.readiness()[0] == 200
        assert manager.run()["database_url"] == os.environ["DATABASE_URL"]
    finally:
        manager.stop()
    assert not (manager.data_dir / "postgres").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_somebody_who_is_not_root_can_run_it(tmp_path: Path) -> None:
    entry = pwd.getpwnam("nobody")
    nobody = Account(name="nobody", uid=entry.pw_uid, gid=entry.pw_gid)
    if not can_enter(Path(sys.executable).resolve().parent, nobody) or not can_enter(ROOT, nobody):
        pytest.skip("this checkout is in a directory that only root may enter")
    home = Path("/tmp") / f"clustermgr-nobody-{os.getpid()}"
    home.mkdir(mode=0o700)
    os.chown(home, nobody.uid, nobody.gid)
    manager = Up(home / "data", HOME=str(home))
    try:
        manager.start(user=nobody.uid, group=nobody.gid, extra_groups=[])
        assert manager.readiness()[0] == 200
    finally:
        manager.stop()
        subprocess.run(["rm", "-rf", str(home)], check=True)
