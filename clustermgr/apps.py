from django.apps import AppConfig
from django.contrib.admin.apps import AdminConfig


class ClusterAdminConfig(AdminConfig):
    default_site = "clustermgr.site.ClusterAdminSite"


class ClusterConfig(AppConfig):
    """API tokens and ticks: what the project itself has to remember."""

    name = "clustermgr"
    verbose_name = "Access"

    def ready(self) -> None:
        # The Celery app becomes current in every process that queues a task. It is loaded
        # here, not in `__init__`, to keep `import clustermgr` light for the supervisor.
        import clustermgr.celery
        import clustermgr.checks
        import clustermgr.ticking
        import clustermgr.workers  # noqa: F401
