"""`manage.py prepare`: migrate, install the broker, make groups, the first admin and API token."""

import os
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from clustermgr import bootstrap, roles
from clustermgr.conf import ClusterSettings, env_text
from clustermgr.embedded.parts import PASSWORD_WORKS
from clustermgr.lib.errors import InvalidInput
from nodes.services import environment
from scheduling.services import seeding


class Command(BaseCommand):
    help = "Make the database usable: run it before every start, as often as you like."

    def handle(self, **_: Any) -> None:
        with bootstrap.exclusively():
            bootstrap.migrate()
            bootstrap.install_broker()
            roles.ensure_groups()
            cluster = settings.CLUSTER
            environment.sync(
                cluster.registration_token,
                auto_approve=cluster.auto_approve_nodes,
                now=timezone.now(),
            )
            _seed(cluster)
            password = env_text(os.environ, "CLUSTER_ADMIN_PASSWORD")
            if password:
                name = os.environ.get("CLUSTER_ADMIN_USER", "admin")
                user = bootstrap.ensure_admin(name, password)
                if user.check_password(password):
                    self.stdout.write(PASSWORD_WORKS)
                secret = env_text(os.environ, "CLUSTER_API_TOKEN")
                if secret:
                    bootstrap.ensure_api_token(user, secret, now=timezone.now())


def _seed(cluster: ClusterSettings) -> None:
    """A rule that cannot be read stops the start: half of what was meant is not what was meant."""
    try:
        found = seeding.documents(
            text=cluster.model_scheduling, path=cluster.model_scheduling_config
        )
        seeding.seed(found, now=timezone.now())
    except InvalidInput as refusal:
        raise CommandError(str(refusal)) from refusal
