"""Secrets that we must be able to say again, kept so that a copy of the database tells none."""

from hashlib import blake2b

from django.conf import settings
from nacl.exceptions import CryptoError
from nacl.secret import SecretBox


def seal(secret: str) -> bytes:
    """Encrypt with a key that is made from DJANGO_SECRET_KEY."""
    return bytes(_box().encrypt(secret.encode()))


def unseal(sealed: bytes) -> str | None:
    """The secret; None when it was sealed under another key, or is damaged."""
    try:
        return _box().decrypt(sealed).decode()
    except (CryptoError, ValueError):
        return None


def _box() -> SecretBox:
    key = blake2b(settings.SECRET_KEY.encode(), digest_size=32, person=b"clustermgr-seal")
    return SecretBox(key.digest())
