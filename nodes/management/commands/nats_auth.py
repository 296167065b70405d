"""Lock the bus down: everything NATS needs to know who is who, from one command."""

import json
from argparse import ArgumentParser
from datetime import datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from clustermgr.lib.natsauth import BadSeed, BadToken, Key, Kind
from clustermgr.lib.natsauth.keyring import Keyring, write_new
from nodes.models import BusAccount, NodeCredential

CONFIGURATION = "nats-auth.conf"


class Command(BaseCommand):
    help = "Make the keys of a locked-down NATS, or tell how locked down this one is."

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        init = verbs.add_parser("init", help="Make what is missing; change nothing that is there.")
        init.add_argument(
            "--dir", type=Path, default=Path("nats-auth"), help="Where the keys live."
        )
        init.add_argument(
            "--resolver-dir",
            type=Path,
            default=Path("/var/lib/nats/accounts"),
            help="Where the NATS server keeps accounts; it must be able to write there.",
        )
        verbs.add_parser("status", help="Show keys (public parts), credentials, and the last push.")

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        if verb == "init":
            self._init(options["dir"].absolute(), options["resolver_dir"])
        else:
            self._status(now=timezone.now())

    def _init(self, home: Path, resolver: Path) -> None:
        try:
            keys = Keyring.open(home, now=timezone.now())
            document = json.dumps(keys.server_configuration(resolver), indent=2) + "\n"
            written = write_new(home / CONFIGURATION, document)
        except (OSError, BadSeed, BadToken) as problem:
            raise CommandError(f"{home}: {problem}") from problem
        made = [*keys.made, *([CONFIGURATION] if written else [])]
        if not made:
            self.stdout.write(f"Everything is there already; nothing was changed in {home}.")
        else:
            self.stdout.write(f"Made in {home}: {', '.join(made)}.")
        self._next_steps(keys)

    def _next_steps(self, keys: Keyring) -> None:
        settings_lines = "\n".join(f"  {name}={value}" for name, value in keys.settings().items())
        self.stdout.write(
            f"\n1. Have the NATS server include {keys.home / CONFIGURATION} (it holds no secret)"
            " in its configuration and restart it.\n"
            f"2. Give the manager's processes these settings and restart them:\n{settings_lines}\n"
            "3. Start workers with LOCALAI_NATS_REQUIRE_AUTH=true.\n"
            f"4. Move {keys.home / 'operator.seed'} to a safe place: nothing here needs it again."
        )

    def _status(self, *, now: datetime) -> None:
        cluster, account = settings.CLUSTER, BusAccount.objects.first()
        credentials = NodeCredential.objects
        told = account.told_at if account else None
        unknown = credentials.to_refuse(now).filter(cut_off_at=None).count()
        lines = {
            "account": _public(cluster.nats_account_seed, Kind.ACCOUNT) or "none: minting is off",
            "operator": _public(cluster.nats_operator_seed, Kind.OPERATOR)
            or "none: nothing can be revoked",
            "service": cluster.nats_credentials or "none",
            "system": cluster.nats_system_credentials or "none: nothing can be revoked",
            "lifetime": f"{cluster.nats_worker_jwt_ttl} for a node's credential",
            "live": f"{credentials.live(now).count()} credentials of nodes",
            "revoked": f"{credentials.to_refuse(now).count()} not yet expired,"
            f" {unknown} of them unknown to NATS",
            "last push": f"{told:%Y-%m-%d %H:%M:%S} UTC" if told else "never",
            "trouble": (account.trouble if account else "") or "none",
        }
        for title, text in lines.items():
            self.stdout.write(f"{title:>10}  {text}")


def _public(seed: str, kind: Kind) -> str:
    try:
        return Key.from_seed(seed, kind).public if seed else ""
    except BadSeed as bad:
        return str(bad)
