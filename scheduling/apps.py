"""The app of wishes."""

from django.apps import AppConfig


class SchedulingConfig(AppConfig):
    name = "scheduling"
    verbose_name = "Models"

    def ready(self) -> None:
        from nodes.signals import capacity_changed
        from scheduling.receivers import on_capacity_changed

        capacity_changed.connect(on_capacity_changed, dispatch_uid="scheduling.capacity_changed")
