"""What lets a worker into NATS: a user JWT and the seed that goes with it."""

import base64
import binascii
from dataclasses import dataclass, field

import msgspec


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    jwt: str
    seed: str = field(repr=False)

    @property
    def expires_at(self) -> float | None:
        """Seconds since the epoch; None for what never ends, or says nothing that we understand."""
        try:
            body = self.jwt.split(".")[1]
            claims = msgspec.json.decode(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        except (IndexError, binascii.Error, ValueError):
            return None
        ends = claims.get("exp") if isinstance(claims, dict) else None
        return float(ends) if type(ends) is int and ends > 0 else None

    def file(self) -> str:
        """As a .creds file holds them: what NATS clients read."""
        return (
            f"-----BEGIN NATS USER JWT-----\n{self.jwt}\n------END NATS USER JWT------\n"
            f"-----BEGIN USER NKEY SEED-----\n{self.seed}\n------END USER NKEY SEED------\n"
        )
