"""The app of wishes."""

from django.apps import AppConfig


class SchedulingConfig(AppConfig):
    name = "scheduling"
    verbose_name = "Scheduling"

    def ready(self) -> None:
        from nodes.services import draining
        from nodes.signals import (
            capacity_changed,
            replica_removed,
            replica_unloading,
            room_came,
            service_lost,
        )
        from scheduling.receivers import (
            on_capacity_changed,
            on_replica_removed,
            on_replica_unloading,
            on_room_came,
            on_service_lost,
        )
        from scheduling.services import surging

        uid = "scheduling.replica_unloading"
        replica_unloading.connect(on_replica_unloading, dispatch_uid=uid)
        replica_removed.connect(on_replica_removed, dispatch_uid="scheduling.replica_removed")
        capacity_changed.connect(on_capacity_changed, dispatch_uid="scheduling.capacity_changed")
        room_came.connect(on_room_came, dispatch_uid="scheduling.room_came")
        service_lost.connect(on_service_lost, dispatch_uid="scheduling.service_lost")
        draining.ask_before_stopping(surging.needed)
