"""Rings for a tick, each in a transaction of its own: a process of its own."""

import sys

import django
from django.db import transaction

from clustermgr.lib import bells

if __name__ == "__main__":
    django.setup()
    for _ in range(int(sys.argv[1])):
        with transaction.atomic():
            bells.ring("scheduling.reconcile")
