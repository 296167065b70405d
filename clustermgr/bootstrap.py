"""Makes an empty database usable, and an existing one current; safe to run at every start."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

import psycopg
from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import call_command
from kombu import Queue
from pgmq.install import install_pgmq_from_sql

from clustermgr import tokens
from clustermgr.celery import app
from clustermgr.lib.locks import NAMESPACE, LockKey
from clustermgr.models import ApiToken


@contextmanager
def exclusively() -> Iterator[None]:
    """Let one process prepare at a time; the others wait and then find nothing to do.

    A session lock on a connection of its own: migrations span many transactions.
    """
    with psycopg.connect(settings.DATABASE_URL, autocommit=True) as connection:
        key = [NAMESPACE, LockKey.BOOTSTRAP.value]
        connection.execute("SELECT pg_advisory_lock(%s, %s)", key)
        yield


def migrate() -> None:
    call_command("migrate", verbosity=0, interactive=False)


def install_broker() -> bool:
    """Put pgmq into its database unless it is there; its script must not run twice."""
    url = settings.CELERY_BROKER_URL
    if not url.startswith("pgmq://"):
        return False
    with psycopg.connect("postgresql://" + url.removeprefix("pgmq://")) as connection:
        known = connection.execute("SELECT to_regclass('pgmq.meta') IS NOT NULL").fetchone()
        if known and known[0]:
            return False
        install_pgmq_from_sql(conn=connection)
    # Before anybody consumes: two processes that declare one queue at once trip over each other.
    with app.connection_for_write() as link:
        for queue in settings.CELERY_TASK_QUEUES:
            Queue(queue.name)(link.default_channel).declare()
    return True


def ensure_admin(name: str, password: str) -> User:
    """Create the first administrator; never touch the password of one that exists."""
    user, created = User.objects.get_or_create(
        username=name, defaults={"is_staff": True, "is_superuser": True}
    )
    if created:
        user.set_password(password)
        user.save()
    return user


def ensure_api_token(user: User, secret: str, *, now: datetime) -> None:
    if not ApiToken.objects.filter(digest=tokens.digest(secret)).exists():
        tokens.issue(user, name="made at installation", now=now, secret=secret)
