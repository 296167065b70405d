import base64
import binascii

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustermgr.lib.natsauth import BadSeed, Key, Kind
from clustermgr.lib.natsauth.keys import raw_public, verify

# The first test vector of RFC 8032, dressed as each kind of nkey
SECRET = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
PUBLIC = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
DRESSED = {
    Kind.OPERATOR: (
        "SOAJ2YNRTXX72WTAXKCEV5ES5QWMIRCJYVUXWMTJDFYDXLADDSXH6YFUVY",
        "ODLVVGABQKYQVN6VJP7NHSLEA45A5YLS6PNKMIZFV4BBU2HXA5IRVH7S",
    ),
    Kind.ACCOUNT: (
        "SAAJ2YNRTXX72WTAXKCEV5ES5QWMIRCJYVUXWMTJDFYDXLADDSXH6YHY3Q",
        "ADLVVGABQKYQVN6VJP7NHSLEA45A5YLS6PNKMIZFV4BBU2HXA5IRVRTU",
    ),
    Kind.USER: (
        "SUAJ2YNRTXX72WTAXKCEV5ES5QWMIRCJYVUXWMTJDFYDXLADDSXH6YALCA",
        "UDLVVGABQKYQVN6VJP7NHSLEA45A5YLS6PNKMIZFV4BBU2HXA5IRUVAL",
    ),
}


@pytest.mark.parametrize("kind", Kind)
def test_a_seed_becomes_the_public_key_that_everybody_else_gets_from_it(kind: Kind) -> None:
    seed, public = DRESSED[kind]
    key = Key.from_seed(f"{seed}\n", kind)
    assert (key.public, key.seed) == (public, seed)
    assert raw_public(public) == PUBLIC


@pytest.mark.parametrize("kind", Kind)
def test_the_encoding_is_the_one_of_the_recipe(kind: Kind) -> None:
    lead = bytes([144 | (kind >> 5), (kind & 31) << 3])
    crc = binascii.crc_hqx(lead + SECRET, 0).to_bytes(2, "little")
    assert base64.b32encode(lead + SECRET + crc).rstrip(b"=").decode() == DRESSED[kind][0]
    crc = binascii.crc_hqx(bytes([kind]) + PUBLIC, 0).to_bytes(2, "little")
    assert base64.b32encode(bytes([kind]) + PUBLIC + crc).decode() == DRESSED[kind][1]


@pytest.mark.parametrize("kind", Kind)
def test_a_fresh_key_is_of_its_kind_and_nobody_elses(kind: Kind) -> None:
    one, other = Key.generate(kind), Key.generate(kind)
    assert one.public != other.public
    assert one.seed.startswith(f"S{kind.name[0]}")
    assert (one.public[0], len(one.public), len(one.seed)) == (kind.name[0], 56, 58)
    assert verify(one.public, b"words", one.sign(b"words"))
    assert not verify(other.public, b"words", one.sign(b"words"))
    assert not verify(one.public, b"other words", one.sign(b"words"))


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", "ü", "SU" * 29, DRESSED[Kind.USER][0], DRESSED[Kind.OPERATOR][1]),
        *(DRESSED[Kind.ACCOUNT][0][:-1], DRESSED[Kind.ACCOUNT][0][:-1] + "A"),
    ],
)
def test_what_is_no_account_seed_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(BadSeed) as refusal:
        Key.from_seed(text, Kind.ACCOUNT)
    assert str(refusal.value) == "This is not the seed of an account (SA...)."


@given(st.text(max_size=60))
def test_no_text_makes_the_reader_crash(text: str) -> None:
    with pytest.raises(BadSeed):
        Key.from_seed(text, Kind.USER)
    assert not verify(text, b"", b"")


def test_a_key_does_not_show_its_seed() -> None:
    key = Key.generate(Kind.USER)
    assert key.seed not in repr(key)
