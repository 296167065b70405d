"""The app of orders."""

from django.apps import AppConfig


class BackendOpsConfig(AppConfig):
    name = "backendops"
    verbose_name = "Backends"
