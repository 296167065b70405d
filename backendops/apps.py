"""The app of orders."""

from django.apps import AppConfig


class BackendOpsConfig(AppConfig):
    name = "backendops"
    verbose_name = "Software"

    def ready(self) -> None:
        from backendops.receivers import on_capacity_changed
        from backendops.services import availability
        from nodes.services import offers
        from nodes.signals import capacity_changed

        capacity_changed.connect(on_capacity_changed, dispatch_uid="backendops.capacity_changed")
        offers.ask_about_backends(availability.limited)
