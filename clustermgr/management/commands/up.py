"""Listed here so that `manage.py help` knows it; manage.py runs it without loading Django."""

from typing import Any

from django.core.management.base import BaseCommand

from clustermgr.embedded.up import main


class Command(BaseCommand):
    help = "Run everything: PostgreSQL, NATS, web, Celery and beat, from this one command."

    def handle(self, **_: Any) -> None:
        raise SystemExit(main())
