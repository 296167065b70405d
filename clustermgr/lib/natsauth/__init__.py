"""NATS in operator mode without a tool: keys, JWTs, permissions, and the files they live in.

No Django here: the supervisor makes keys before anything else runs.
"""

from clustermgr.lib.natsauth.claims import (
    BadToken,
    account_claims,
    decode,
    encode,
    operator_claims,
    user_claims,
)
from clustermgr.lib.natsauth.keys import BadSeed, Key, Kind
from clustermgr.lib.natsauth.permissions import SERVICE, SYSTEM, Permissions

__all__ = [
    "SERVICE",
    "SYSTEM",
    "BadSeed",
    "BadToken",
    "Key",
    "Kind",
    "Permissions",
    "account_claims",
    "decode",
    "encode",
    "operator_claims",
    "user_claims",
]
