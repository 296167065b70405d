"""The Celery app; what it does is in each app's tasks.py, when it ticks in beat.py."""

from celery import Celery

app = Celery("clustermgr")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["clustermgr", "nodes"])
