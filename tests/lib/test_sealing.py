from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from clustermgr.lib.sealing import seal, unseal


@given(st.text())
def test_what_was_sealed_can_be_read_again_and_does_not_show(secret: str) -> None:
    sealed = seal(secret)
    assert unseal(sealed) == secret
    assert len(secret) < 4 or secret.encode() not in sealed


def test_another_key_reads_nothing(settings: Any) -> None:
    sealed = seal("jt_secret")
    settings.SECRET_KEY = "another-" + "x" * 50
    assert unseal(sealed) is None


def test_what_is_damaged_reads_nothing() -> None:
    sealed = bytearray(seal("jt_secret"))
    sealed[-1] ^= 1
    assert unseal(bytes(sealed)) is None
    assert unseal(b"short") is None
