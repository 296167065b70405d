"""Queues waiting tasks as clicks would, each with its own request id: a process of its own."""

import sys

import django
from django.db import transaction

from clustermgr.lib.context import request_id
from clustermgr.lib.queue import after_commit

if __name__ == "__main__":
    django.setup()
    for number in range(int(sys.argv[1])):
        request_id.set(f"click-{number}")
        with transaction.atomic():
            after_commit("tests.wait_for_node", number)
