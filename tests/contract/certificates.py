"""A certificate authority for one test, made by the openssl command."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

needs_openssl = pytest.mark.skipif(not shutil.which("openssl"), reason="no openssl command here")


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    cert: str
    key: str


def authority(home: Path) -> Certificate:
    return _make(home, "ca", "-addext", "keyUsage=critical,keyCertSign")


def issue(home: Path, name: str, *, by: Certificate) -> Certificate:
    """A certificate for 127.0.0.1, good for servers and for clients."""
    signed = ("-CA", by.cert, "-CAkey", by.key, "-addext", "basicConstraints=critical,CA:FALSE")
    return _make(home, name, *signed, "-addext", "subjectAltName=IP:127.0.0.1")


def _make(home: Path, name: str, *more: str) -> Certificate:
    made = Certificate(cert=str(home / f"{name}.pem"), key=str(home / f"{name}.key"))
    command = ["openssl", "req", "-x509", "-nodes", "-days", "2", "-subj", f"/CN={name}"]
    command += ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    command += ["-out", made.cert, "-keyout", made.key, *more]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return made
