import os
from pathlib import Path

import pytest

from clustermgr.embedded.accounts import Account, can_enter, unprivileged


def stranger() -> Account:
    """An account that owns nothing."""
    return Account(name="stranger", uid=os.getuid() + 40_000, gid=os.getgid() + 40_000)


def test_a_private_directory_above_bars_the_way(tmp_path: Path) -> None:
    inner = tmp_path / "private" / "inner"
    inner.mkdir(parents=True)
    inner.chmod(0o755)
    inner.parent.chmod(0o700)
    assert not can_enter(inner, stranger())


def test_we_may_enter_what_we_own(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    assert can_enter(tmp_path, None)


@pytest.mark.skipif(os.geteuid() == 0, reason="this is what happens without root")
def test_without_root_we_stay_who_we_are() -> None:
    assert unprivileged() is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_root_becomes_somebody_who_is_not_root() -> None:
    account = unprivileged()
    assert account is not None
    assert account.uid != 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_an_account_that_does_not_exist_is_named() -> None:
    with pytest.raises(LookupError, match="no-such-user"):
        unprivileged("no-such-user")
