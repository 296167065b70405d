import base64
import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustermgr.lib.natsauth import (
    SERVICE,
    BadToken,
    Key,
    Kind,
    Permissions,
    account_claims,
    decode,
    encode,
    user_claims,
)
from clustermgr.lib.natsauth.claims import _identity

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
ACCOUNT, USER = Key.generate(Kind.ACCOUNT), Key.generate(Kind.USER)
HEADER = "eyJ0eXAiOiJKV1QiLCJhbGciOiJlZDI1NTE5LW5rZXkifQ"


def minted() -> str:
    may = Permissions(publish=("a.*",), subscribe=("b.>",), answer_within=timedelta(minutes=15))
    claims = user_claims(may, account=ACCOUNT.public, expires_at=NOW + timedelta(hours=24))
    return encode(claims, subject=USER.public, name="localai-backend-n1", by=ACCOUNT, now=NOW)


def test_the_identity_is_the_one_nats_own_library_computes() -> None:
    # Of a token that nsc made
    claims = {
        "iat": 1661793221,
        "iss": "AA4IKUM7LUNVK2STCYV7IIZVSXWAXHUPA5EB5J3PCF4WZNIQTJMZ2ZVN",
        "name": "test",
        "sub": "UA4FLMDT2IVMXD6IVUF4ODY7Q4SIPRSI3TTK7VLGHETSCUB4HG3BTXYE",
    }
    assert _identity(claims) == "Y333OG5JQNW6WSMC5ILB64RNTGHRDLA3TS4RFCRZ2E74IXO5AMNA"


def test_the_identity_leaves_out_what_is_empty_and_what_is_not_standard() -> None:
    claims = {"sub": "U", "iss": "A", "name": "", "nats": {"x": 1}, "jti": "old"}
    assert _identity(claims) == _identity({"iss": "A", "sub": "U"})


def test_a_workers_token_is_as_localai_mints_it() -> None:
    head, body, signature = minted().split(".")
    assert head == HEADER
    assert "=" not in body + signature
    assert decode(minted()) == {
        "exp": int(NOW.timestamp()) + 24 * 3600,
        "iat": int(NOW.timestamp()),
        "iss": ACCOUNT.public,
        "jti": decode(minted())["jti"],
        "name": "localai-backend-n1",
        "nats": {
            "data": -1,
            "issuer_account": ACCOUNT.public,
            "payload": -1,
            "pub": {"allow": ["a.*"]},
            "resp": {"max": 1, "ttl": 15 * 60 * 10**9},
            "sub": {"allow": ["b.>"]},
            "subs": -1,
            "type": "user",
            "version": 2,
        },
        "sub": USER.public,
    }


def test_a_user_without_an_end_has_no_end_in_its_token() -> None:
    claims = user_claims(SERVICE, account=ACCOUNT.public)
    read = decode(encode(claims, subject=USER.public, name="us", by=ACCOUNT, now=NOW))
    assert "exp" not in read
    assert "resp" not in read["nats"]


def test_claims_that_were_read_can_be_changed_and_signed_again() -> None:
    signer = Key.generate(Kind.OPERATOR)
    first = {**account_claims(revocations={"U1": 5}), "exp": 99}
    read = decode(encode(first, subject=ACCOUNT.public, name="n", by=signer, now=NOW))
    read["nats"]["revocations"]["U2"] = 6
    later = NOW + timedelta(seconds=1)
    again = decode(encode(read, subject=ACCOUNT.public, name="n", by=signer, now=later))
    assert again["nats"]["revocations"] == {"U1": 5, "U2": 6}
    assert (again["exp"], again["iat"]) == (99, read["iat"] + 1)
    assert again["jti"] != read["jti"]


def forged(**changes: object) -> str:
    head, body, signature = minted().split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "==")) | changes
    other = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    return f"{head}.{other}.{signature}"


@pytest.mark.parametrize(
    "token",
    [
        "",
        "a.b",
        "a.b.c",
        f"{HEADER}.e30.",
        minted()[:-4],
        forged(sub=ACCOUNT.public),
        forged(iss=Key.generate(Kind.ACCOUNT).public),
        forged(iss="nobody"),
        forged(iss=None),
        "eyJ0eXAiOiJKV1QiLCJhbGciOiJub25lIn0" + minted()[len(HEADER) :],
    ],
)
def test_what_its_issuer_did_not_sign_is_no_token(token: str) -> None:
    with pytest.raises(BadToken):
        decode(token)


@given(st.text(max_size=80))
def test_no_text_makes_the_reader_crash(text: str) -> None:
    with pytest.raises(BadToken):
        decode(text)
