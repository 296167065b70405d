"""The Celery app; what it does is in each app's tasks.py, when it ticks in beat.py."""

import os
import warnings

from celery import Celery
from celery.platforms import SecurityWarning  # type: ignore[attr-defined]

# Celery fears root because of pickle; we accept JSON only.
warnings.filterwarnings("ignore", category=SecurityWarning)
# kombu asks pgmq for its queues in a way that pgmq announces to change
warnings.filterwarnings("ignore", message=r"list_queues\(\) now returns", category=UserWarning)

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "clustermgr.settings")

app = Celery("clustermgr")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["clustermgr", "nodes", "backendops", "scheduling"])
