import os
import subprocess
import sys

import pytest
from django.db import connection

from clustermgr.lib import fastlane

SHOW = "from django.conf import settings; print(settings.DATABASES['default']['OPTIONS'])"


@pytest.mark.django_db(transaction=True)
def test_it_connects_as_django_does_so_that_a_dead_host_shows_within_seconds() -> None:
    connection.ensure_connection()
    with fastlane._pool().connection() as bare:
        ours = bare.info.get_parameters()
    theirs = connection.connection.info.get_parameters()
    assert ours.pop("options") == "-c synchronous_commit=off"
    assert ours == theirs
    assert ours["keepalives_idle"] == "10"


def test_what_the_url_of_the_database_says_of_tls_is_kept() -> None:
    url = "postgres://u:p@db.example/cluster?sslmode=verify-full&sslrootcert=/etc/ca.pem"
    told = subprocess.run(
        [sys.executable, "-c", SHOW],
        env={**os.environ, "DATABASE_URL": url},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "'sslmode': 'verify-full'" in told.stdout
    assert "'sslrootcert': '/etc/ca.pem'" in told.stdout
    assert "'keepalives_idle': 10" in told.stdout
