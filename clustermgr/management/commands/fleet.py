"""Listed here so that `manage.py help` knows it; manage.py runs it without loading Django."""

import sys
from typing import Any

from django.core.management.base import BaseCommand

from clustermgr.embedded.fleet import main


class Command(BaseCommand):
    help = "Add, silence, wake, crash, remove and list simulated nodes of a running `make run`."

    def run_from_argv(self, argv: list[str]) -> None:
        sys.exit(main(argv[2:]))

    def handle(self, **_: Any) -> None:
        raise SystemExit(main([]))
