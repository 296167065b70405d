"""nkeys: ed25519 keys whose first letters say what they are for."""

import base64
import binascii
import os
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Self

import nkeys
from nacl.exceptions import BadSignatureError
from nacl.signing import VerifyKey


class BadSeed(ValueError):
    """The text is no seed, or one of another kind; the words never repeat it."""


class Kind(IntEnum):
    """The prefix byte; the public key begins with the letter of the name."""

    OPERATOR = nkeys.PREFIX_BYTE_OPERATOR
    ACCOUNT = nkeys.PREFIX_BYTE_ACCOUNT
    USER = nkeys.PREFIX_BYTE_USER


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A pair: the seed signs, the public key names its owner."""

    kind: Kind
    public: str
    seed: str = field(repr=False)

    @classmethod
    def generate(cls, kind: Kind) -> Self:
        """Make a pair nobody else has."""
        return cls.from_seed(nkeys.encode_seed(os.urandom(32), kind).decode(), kind)

    @classmethod
    def from_seed(cls, text: str, kind: Kind) -> Self:
        """Read a seed of this kind, checksum and all."""
        seed = text.strip()
        try:
            found, raw = nkeys.decode_seed(bytearray(seed, "ascii"))
            whole = found == kind and nkeys.encode_seed(bytes(raw), found).decode() == seed
        except (nkeys.NkeysError, UnicodeEncodeError):
            whole = False
        if not whole:
            article = "a" if kind is Kind.USER else "an"
            raise BadSeed(
                f"This is not the seed of {article} {kind.name.lower()} (S{kind.name[0]}...)."
            )
        return cls(kind=kind, public=_pair(seed).public_key.decode(), seed=seed)

    def sign(self, message: bytes) -> bytes:
        signature: bytes = _pair(self.seed).sign(message)
        return signature


def verify(public: str, message: bytes, signature: bytes) -> bool:
    """Whether the owner of `public` signed `message`."""
    try:
        VerifyKey(raw_public(public)).verify(message, signature)
    except (BadSignatureError, ValueError):
        return False
    return True


def raw_public(public: str) -> bytes:
    """The 32 bytes behind a public key; ValueError when prefix or checksum are wrong."""
    try:
        raw = base64.b32decode(public + "=" * (-len(public) % 8))
    except binascii.Error as error:
        raise ValueError("not a public key") from error
    body, checksum = raw[:-2], raw[-2:]
    if len(body) != 33 or body[0] not in list(Kind):
        raise ValueError("not a public key")
    if binascii.crc_hqx(body, 0).to_bytes(2, "little") != checksum:
        raise ValueError("not a public key")
    return body[1:]


def _pair(seed: str) -> nkeys.KeyPair:
    return nkeys.from_seed(bytearray(seed, "ascii"))
