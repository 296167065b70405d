import asyncio
import time
import uuid
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.aio.msg import Msg

from clustermgr.lib.natsauth import SYSTEM, Permissions
from clustermgr.lib.natsauth.permissions import CLUSTER
from nodes.wire.permissions import AGENTS_HEAR, AGENTS_SAY, permissions_of, role_of
from nodes.wire.prefixcache import INVALIDATE, OBSERVE
from nodes.wire.subjects import (
    INSTALL,
    INSTALL_PROGRESS,
    LIST_BACKENDS,
    SUBJECTS,
    Kind,
    Role,
    Subject,
    sanitise,
)
from tests.buslock.clients import connected, manager, node, until, user
from tests.contract.nats_server import Server

A, B = str(uuid.UUID(int=1)), str(uuid.UUID(int=2))
NODES = (Role.WORKER, Role.AGENT)
TO_NODES = [
    pytest.param(subject, role, id=f"{subject.path}-{role}")
    for subject in SUBJECTS
    for role in subject.subscribers
    if role in NODES
]
FROM_NODES = [
    pytest.param(subject, subject.publisher, id=subject.path)
    for subject in SUBJECTS
    if subject.publisher in NODES
]
MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(("subject", "role"), TO_NODES)
def test_whatever_we_tell_a_node_it_hears_and_answers(
    locked: Server, subject: Subject, role: Role
) -> None:
    async def talk() -> None:
        async with node(locked, A, role=role) as worker, manager(locked) as us:
            heard: list[bytes] = []

            async def answer(message: Msg) -> None:
                heard.append(message.data)
                if message.reply:
                    await message.respond(b"yes")

            assert await worker.hears(subject.of(A, op="op-1"), answer)
            if subject.kind is Kind.REQUEST:
                reply = await us.client.request(subject.of(A, op="op-1"), b"{}", timeout=60)
                assert reply.data == b"yes"
            else:
                assert await us.says(subject.of(A, op="op-1"))
            await until(lambda: heard == [b"{}"])

    asyncio.run(talk())


@pytest.mark.parametrize(("subject", "role"), FROM_NODES)
def test_whatever_a_node_tells_us_we_hear(locked: Server, subject: Subject, role: Role) -> None:
    async def talk() -> None:
        async with node(locked, A, role=role) as worker, manager(locked) as us:
            heard = await us.collect(subject.of(A, op="op-1"))
            assert await worker.says(subject.of(A, op="op-1"))
            await until(lambda: len(heard) == 1)

    asyncio.run(talk())


@pytest.mark.parametrize("role", NODES)
def test_a_node_hears_nothing_else(locked: Server, role: Role) -> None:
    mine = {each.any_of(A) for each in SUBJECTS if role in each.subscribers}
    others = {each.any_of(B) for each in SUBJECTS} | {each.any_of(A) for each in SUBJECTS} - mine
    patterns = {">", "*", "nodes.>", "nodes.*.>", "nodes.*.stop", f"nodes.{A}.>", f"nodes.{B}.>"}
    patterns |= {f"nodes.{A}.*", f"nodes.{A}.backend.*", "nodes.*.backend.stop", "$SYS.>"}
    unknown = {f"nodes.{A}.backend.start", f"nodes.{A}", "_INBOX.>", "_INBOX.x", "prefixcache.>"}

    async def listen() -> list[str]:
        async with node(locked, A, role=role) as worker:
            asked = sorted(others | patterns | unknown)
            return [subject for subject in asked if await worker.hears(subject)]

    assert asyncio.run(listen()) == []


def test_a_worker_says_nothing_else(locked: Server) -> None:
    commands = {each.of(A, op="x") for each in SUBJECTS if each.publisher is Role.MANAGER}
    others = {each.of(B, op="x") for each in SUBJECTS}
    unknown = {f"nodes.{A}.backend.start", f"nodes.{A}.backend.install.a.b.progress", "_INBOX.x"}
    broadcast = {pattern.replace(">", "x") for pattern in CLUSTER}

    async def talk() -> list[str]:
        async with node(locked, A) as worker:
            asked = sorted(commands | others | unknown | broadcast | {"$SYS.REQ.CLAIMS.UPDATE"})
            return [subject for subject in asked if await worker.says(subject)]

    assert asyncio.run(talk()) == []


def test_an_agent_commands_no_node(locked: Server) -> None:
    async def talk() -> list[str]:
        async with node(locked, A, role=Role.AGENT) as agent:
            asked = [each.of(other, op="x") for each in SUBJECTS for other in (A, B)]
            return [subject for subject in asked if await agent.says(subject)]

    assert asyncio.run(talk()) == []


def test_an_agent_of_localai_gets_what_it_subscribes_to_when_it_starts(locked: Server) -> None:
    async def talk() -> None:
        async with node(locked, A, role=Role.AGENT) as agent:
            assert [each for each in AGENTS_HEAR if not await agent.hears(each)] == []
            concrete = [each.replace(">", "x") for each in AGENTS_SAY]
            assert [each for each in concrete if not await agent.says(each)] == []

    asyncio.run(talk())


@pytest.mark.parametrize("subject", [OBSERVE, INVALIDATE])
def test_managers_tell_each_other_about_prompts_and_no_node_joins_in(
    locked: Server, subject: str
) -> None:
    async def talk() -> None:
        async with manager(locked) as us, manager(locked) as others:
            heard = await others.collect(subject)
            assert await us.says(subject)
            await until(lambda: len(heard) == 1)
            for role in NODES:
                async with node(locked, A, role=role) as stranger:
                    assert not await stranger.says(subject)
                    assert not await stranger.hears(subject)
            assert len(heard) == 1

    asyncio.run(talk())


def test_one_node_cannot_answer_what_another_was_asked(locked: Server) -> None:
    async def talk() -> None:
        async with node(locked, A) as a, node(locked, B) as b, manager(locked) as us:
            asked = await b.collect(LIST_BACKENDS.of(B))
            question = asyncio.create_task(us.client.request(LIST_BACKENDS.of(B), timeout=60))
            await until(lambda: len(asked) == 1)
            assert not await a.says(asked[0].reply)  # even if it knew where
            await asked[0].respond(b"from b")
            assert (await question).data == b"from b"

    asyncio.run(talk())


def test_an_answer_may_take_its_time_but_not_longer_than_allowed(locked: Server) -> None:
    async def talk() -> tuple[bool, bool]:
        within = timedelta(seconds=3)
        async with node(locked, A, answer_within=within) as worker, manager(locked) as us:
            asked = await worker.collect(INSTALL.of(A))
            for inbox in ("_INBOX.x.early", "_INBOX.x.late"):
                assert await us.says(INSTALL.of(A), reply=inbox)
            await until(lambda: len(asked) == 2)
            began = time.monotonic()
            await until(lambda: time.monotonic() > began + 0.5)
            early = await worker.says("_INBOX.x.early")
            await until(lambda: time.monotonic() > began + 3.5)
            return early, await worker.says("_INBOX.x.late")

    assert asyncio.run(talk()) == (True, False)


def test_a_question_is_answered_once(locked: Server) -> None:
    async def talk() -> list[bool]:
        async with node(locked, A) as worker, manager(locked) as us:
            asked = await worker.collect(INSTALL.of(A))
            await us.says(INSTALL.of(A), reply="_INBOX.x.1")
            await until(lambda: len(asked) == 1)
            return [await worker.says("_INBOX.x.1") for _ in range(2)]

    assert asyncio.run(talk()) == [True, False]


def test_a_node_cannot_lend_itself_the_right_to_say_anything_anywhere(locked: Server) -> None:
    # The server lets it answer what reached it: a message of its own with a chosen reply would do
    goal, own = INSTALL.of(B), INSTALL_PROGRESS.of(A, op="x")

    async def trespass(permissions: Permissions) -> bool:
        async with user(locked, permissions) as worker:
            await worker.hears(own)
            await worker.says(own, reply=goal)
            return await worker.says(goal)

    minted = permissions_of(Role.WORKER, A, answer_within=MINUTE)
    careless = Permissions(
        publish=minted.publish, subscribe=(f"nodes.{A}.>",), answer_within=MINUTE
    )
    assert asyncio.run(trespass(careless)), "the danger is gone; this rule may be, too"
    assert not asyncio.run(trespass(minted))


def test_a_trace_is_no_way_around_either(locked: Server) -> None:
    # The server itself publishes to where this header points
    async def talk() -> list[Msg]:
        async with node(locked, A) as worker, manager(locked) as us:
            heard = await us.collect(f"nodes.{B}.>")
            headers = {"Nats-Trace-Dest": INSTALL.of(B)}
            await worker.client.publish(INSTALL_PROGRESS.of(A, op="x"), b"{}", headers=headers)
            await worker.client.flush()
            await until(lambda: len(worker.complaints) == 1)
            return heard

    assert asyncio.run(talk()) == []


def test_the_system_user_can_replace_accounts_and_nothing_more(locked: Server) -> None:
    assert locked.nats.keys
    path = str(locked.nats.keys.home / "system.creds")

    async def talk() -> None:
        async with connected(locked, path) as system:
            for subject in ("$SYS.>", "$SYS.ACCOUNT.*.CONNECT", ">", "nodes.>"):
                assert not await system.hears(subject)
            for subject in ("$SYS.REQ.SERVER.PING", "$SYS.REQ.CLAIMS.DELETE", "nodes.x.stop"):
                assert not await system.says(subject)

    asyncio.run(talk())
    assert all(subject.startswith("$SYS.REQ.") for subject in SYSTEM.publish)


def test_managers_may_tell_each_other_everything_of_the_cluster(locked: Server) -> None:
    async def talk() -> None:
        async with manager(locked) as us:
            for pattern in CLUSTER:
                assert await us.hears(pattern)
                assert await us.says(pattern.replace(">", "x"))
            assert not await us.hears("$SYS.>")
            assert not await us.hears(">")

    asyncio.run(talk())


@given(st.uuids(), st.uuids())
def test_no_permission_of_a_worker_leaves_its_node_or_can_be_looped(
    one: uuid.UUID, other: uuid.UUID
) -> None:
    ours = permissions_of(Role.WORKER, one, answer_within=MINUTE)
    theirs = permissions_of(Role.WORKER, other, answer_within=MINUTE)
    assert all(each.startswith(f"nodes.{one}.") for each in (*ours.publish, *ours.subscribe))
    assert not set(ours.publish) & set(ours.subscribe)
    assert not any("*" in each or ">" in each for each in ours.subscribe)
    if one != other:
        assert not {*ours.publish, *ours.subscribe} & {*theirs.publish, *theirs.subscribe}


@given(st.text(min_size=1).filter(lambda text: text.isprintable()))
def test_an_odd_id_stays_one_token(node_id: str) -> None:
    ours = permissions_of(Role.WORKER, node_id, answer_within=MINUTE)
    assert all(each.split(".")[1] == sanitise(node_id) for each in ours.subscribe)


@pytest.mark.parametrize(
    ("node_type", "role"), [("backend", Role.WORKER), ("agent", Role.AGENT), ("new", Role.WORKER)]
)
def test_whoever_is_no_agent_is_a_worker(node_type: str, role: Role) -> None:
    assert role_of(node_type) is role
