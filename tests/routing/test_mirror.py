"""The pick in SQL and the pure picker are one policy."""

import random
from datetime import timedelta
from uuid import UUID

import pytest

from nodes.models import NodeModel
from scheduling.prefixes.index import Seat
from scheduling.prefixes.selecting import Candidate, Wish, choose, choose_for_session
from scheduling.routing.asks import Ask
from scheduling.services import leasing
from scheduling.services.leasing import Terms, Wanted
from tests.factories import NOW, make_node, make_replica

pytestmark = pytest.mark.django_db

MINUTE = timedelta(minutes=1)


def cluster(dice: random.Random) -> list[NodeModel]:
    """Replicas that differ in everything the pick looks at, with many ties."""
    rows = []
    for number in range(dice.randint(1, 4)):
        node = make_node(
            f"n{number}", id=UUID(int=dice.getrandbits(128)), available_vram=dice.randint(0, 2)
        )
        for index in range(dice.randint(1, 3)):
            used = dice.choice([None, NOW - MINUTE, NOW - 2 * MINUTE])
            rows.append(
                make_replica(node, index=index, in_flight=dice.randint(0, 3), last_used=used)
            )
    return rows


def candidates() -> list[Candidate]:
    return [
        Candidate(
            Seat(row.pk, row.node_id, row.replica_index),
            row.in_flight,
            row.last_used,
            row.node.available_vram,
        )
        for row in NodeModel.objects.select_related("node")
    ]


def wish(dice: random.Random, rows: list[NodeModel]) -> Wish | None:
    if dice.random() < 0.4:
        return None
    ids = [row.pk for row in rows]
    return Wish(
        hot=dice.choice([None, *ids, UUID(int=1)]),
        cold=tuple(dice.sample(ids, dice.randint(0, len(ids)))),
        abs=dice.randint(0, 2),
        rel=dice.choice([1.0, 1.5, 2.0]),
        shadow=dice.random() < 0.2,
    )


def wanted(wish: Wish | None) -> Wanted:
    ask = Ask(model="llama", holder="tests", ttl=MINUTE)
    if wish is None:
        return Wanted(ask=ask)
    return Wanted(ask=ask, hot=wish.hot, by_prefix=not wish.shadow)


def terms(wish: Wish | None) -> Terms:
    return Terms(busier=wish.abs, times_busier=wish.rel, cold=wish.cold) if wish else Terms()


@pytest.mark.parametrize("seed", range(60))
def test_sql_picks_whom_the_pure_picker_picks(seed: int) -> None:
    dice = random.Random(seed)
    rows = cluster(dice)
    now = NOW
    for _ in range(12):
        now += MINUTE
        asked = wish(dice, rows)
        expected = choose(candidates(), asked)
        (lease,) = leasing.take([wanted(asked)], terms(asked), now=now)
        assert expected is not None
        assert lease is not None
        assert lease.replica == expected.seat.id, (asked, candidates())
        assert lease.missed == expected.pressure
        if dice.random() < 0.5:
            leasing.release([lease.id])


@pytest.mark.parametrize("seed", range(30))
def test_sql_and_the_pure_picker_agree_on_who_serves_a_session(seed: int) -> None:
    dice = random.Random(seed)
    cluster(dice)
    for _ in range(12):
        guard = Wish(abs=dice.randint(0, 2), rel=dice.choice([1.0, 1.5, 2.0]))
        session = dice.choice(["anna", "bert", "Zoë"])
        expected = choose_for_session(candidates(), session, guard)
        ask = Ask(model="llama", holder="tests", ttl=MINUTE, session=session)
        (lease,) = leasing.take([Wanted(ask=ask)], terms(guard), now=NOW)
        assert expected is not None
        assert lease is not None
        assert lease.replica == expected.seat.id
        assert lease.missed == expected.pressure
        if dice.random() < 0.5:
            leasing.release([lease.id])


@pytest.mark.parametrize("seed", range(30))
def test_many_at_once_get_what_they_would_have_got_one_after_the_other(seed: int) -> None:
    dice = random.Random(seed)
    cluster(dice)
    count = dice.randint(2, 12)
    one_by_one: list[UUID] = []
    pool = candidates()
    for turn in range(count):
        chosen = choose(pool, None)
        assert chosen is not None
        one_by_one.append(chosen.seat.id)
        used = NOW + turn * timedelta(microseconds=1)
        pool = [
            one._replace(in_flight=one.in_flight + 1, last_used=used)
            if one.seat.id == chosen.seat.id
            else one
            for one in pool
        ]
    leases = leasing.take([wanted(None) for _ in range(count)], Terms(), now=NOW)
    assert [lease.replica for lease in leases if lease] == one_by_one
