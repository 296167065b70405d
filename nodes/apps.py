from django.apps import AppConfig


class NodesConfig(AppConfig):
    """Facts: which machines exist, what runs on them, how to talk to them."""

    name = "nodes"
    verbose_name = "Fleet"
