"""A task as `nodeops` runs them: closes its connection, then waits for a node."""

from datetime import timedelta

from celery import shared_task
from django.db import connection

from clustermgr.lib.bus import default_bus
from clustermgr.lib.context import request_id

SUBJECT = "tests.a.node.that.never.answers"


@shared_task(name="tests.wait_for_node", ignore_result=True)
def wait_for_node(number: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    connection.close()
    words = f"{number} {request_id.get()}".encode()
    default_bus().request(SUBJECT, words, timeout=timedelta(minutes=15))
