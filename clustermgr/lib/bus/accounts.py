"""Our account as the NATS server knows it: read it, replace it. Asked as the system account."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from clustermgr.conf import ClusterSettings
from clustermgr.lib.bus import Bus, NatsBus
from clustermgr.lib.errors import BusRefused
from clustermgr.lib.natsauth import BadSeed, BadToken, Key, Kind, decode, encode

SOON = timedelta(seconds=5)
NEEDED = (
    "CLUSTER_NATS_ACCOUNT_SEED",
    "CLUSTER_NATS_OPERATOR_SEED",
    "CLUSTER_NATS_SYSTEM_CREDENTIALS",
)

Claims = dict[str, Any]


class AccountServer:
    """The resolver of a server; of a cluster's, whichever answers first tells the others."""

    def __init__(self, bus: Bus, *, account: str, signer: Key) -> None:
        self._bus = bus
        self._account = account
        self._signer = signer

    def read(self) -> Claims:
        """The claims that the server goes by now."""
        lookup = f"$SYS.REQ.ACCOUNT.{self._account}.CLAIMS.LOOKUP"
        try:
            claims = decode(self._bus.request(lookup, b"", timeout=SOON).decode(errors="replace"))
        except BadToken:
            raise BusRefused("NATS does not know our account.") from None
        if claims.get("sub") != self._account:
            raise BusRefused("NATS answered with another account than ours.")
        return claims

    def replace(self, claims: Claims, *, now: datetime) -> None:
        """Sign `claims` anew and have the server go by them; users they revoke are cut off.

        Each is newer than the one before, whatever the clocks say: servers keep the newest.
        """
        if claims.get("iss") != self._signer.public:
            # The server would take a stranger's word, and trust the account no more.
            raise BusRefused("CLUSTER_NATS_OPERATOR_SEED is not the key that signed the account.")
        after = datetime.fromtimestamp(int(claims["iat"]) + 1, UTC)
        token = encode(
            claims,
            subject=self._account,
            name=str(claims.get("name", "")),
            by=self._signer,
            now=max(now, after),
        )
        reply = self._bus.request("$SYS.REQ.CLAIMS.UPDATE", token.encode(), timeout=SOON)
        if (refusal := _refusal(reply)) is not None:
            raise BusRefused(f"NATS did not take the account's new claims: {refusal}")


@contextmanager
def account_server(cluster: ClusterSettings) -> Iterator[AccountServer]:
    """Connect as the system account while the block runs: seldom enough to hang up after."""
    if not (
        cluster.nats_account_seed and cluster.nats_operator_seed and cluster.nats_system_credentials
    ):
        raise BusRefused(f"Revoking needs {', '.join(NEEDED)}; one of them is not set.")
    try:
        account = Key.from_seed(cluster.nats_account_seed, Kind.ACCOUNT)
        signer = Key.from_seed(cluster.nats_operator_seed, Kind.OPERATOR)
    except BadSeed as bad:
        raise BusRefused(str(bad)) from bad
    bus = NatsBus(replace(cluster, nats_credentials=cluster.nats_system_credentials))
    try:
        yield AccountServer(bus, account=account.public, signer=signer)
    finally:
        bus.close()


def _refusal(reply: bytes) -> str | None:
    """What the server has against it; None when it agreed."""
    try:
        said = json.loads(reply)
        if said.get("data", {}).get("code") == 200:
            return None
        return str(said.get("error", {}).get("description", "no reason given"))
    except (ValueError, AttributeError):
        return "an answer that makes no sense"
