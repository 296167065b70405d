"""A drained node's worker is told to exit, once it is ordered and as often as it takes."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from pytest_django import DjangoCaptureOnCommitCallbacks

from clustermgr.lib.errors import InvalidMove
from nodes.models import BackendNode
from nodes.presenting import words
from nodes.services import draining, lifecycle, obstacles
from nodes.states import Liveness
from tests.factories import NOW, make_node, make_replica

pytestmark = pytest.mark.django_db

SOON = NOW + timedelta(seconds=5)
Queued = list[tuple[Any, ...]]
Commits = DjangoCaptureOnCommitCallbacks


def drained(name: str = "gpu-1") -> BackendNode:
    return draining.drain(make_node(name), by="ada", reason="", now=NOW, deadline=None)


def tick(commits: Commits, now: Any = SOON) -> None:
    with commits(execute=True):
        draining.finish_drains(now=now)
        draining.dismiss_workers(now=now)


def told(queued: Queued) -> list[str]:
    return [args[0] for name, *args in queued if name == "nodes.stop_worker"]


def test_a_worker_is_told_when_its_node_is_empty_and_not_before(
    queued: Queued, django_capture_on_commit_callbacks: Commits
) -> None:
    node = make_node()
    replica = make_replica(node, in_flight=1)
    draining.drain(node, by="ada", reason="", now=NOW, deadline=None)
    draining.stop_worker(node, by="ada", now=NOW)
    tick(django_capture_on_commit_callbacks)
    assert told(queued) == []
    assert "Then its worker is told to exit." in words.facts(node, now=NOW)[2].text
    replica.delete()
    tick(django_capture_on_commit_callbacks)
    assert told(queued) == [str(node.pk)]
    node.refresh_from_db()
    assert node.stop_told_at == SOON
    assert "Its worker was told to exit on " in words.facts(node, now=NOW)[2].text


def test_it_is_told_again_after_a_while_until_it_says_goodbye(
    queued: Queued, django_capture_on_commit_callbacks: Commits
) -> None:
    node = draining.stop_worker(drained(), by="ada", now=NOW)
    again = SOON + draining.TOLD_AGAIN_AFTER
    for now in (SOON, SOON, again - timedelta(seconds=1), again):
        tick(django_capture_on_commit_callbacks, now)
    assert told(queued) == [str(node.pk)] * 2
    lifecycle.leave(node, now=again)
    node.refresh_from_db()
    assert (node.stop_ordered_at, node.drained_at is not None) == (None, True)
    tick(django_capture_on_commit_callbacks, again + draining.TOLD_AGAIN_AFTER)
    assert len(told(queued)) == 2


def test_who_was_not_asked_to_stop_is_not_told(
    queued: Queued, django_capture_on_commit_callbacks: Commits
) -> None:
    drained("gpu-1")
    silent = draining.stop_worker(drained("gpu-2"), by="ada", now=NOW)
    BackendNode.objects.filter(pk=silent.pk).update(liveness=Liveness.OFFLINE)
    tick(django_capture_on_commit_callbacks)
    assert told(queued) == []


def test_calling_the_drain_off_calls_the_stop_off(
    queued: Queued, django_capture_on_commit_callbacks: Commits
) -> None:
    node = draining.stop_worker(drained(), by="ada", now=NOW)
    draining.resume(node, by="ada", now=NOW)
    assert node.stop_ordered_at is None
    tick(django_capture_on_commit_callbacks)
    assert told(queued) == []


@pytest.mark.parametrize("change", ["resume", "leave"])
def test_a_word_that_comes_late_is_not_said(
    change: str, queued: Queued, django_capture_on_commit_callbacks: Commits
) -> None:
    node = draining.stop_worker(drained(), by="ada", now=NOW)
    tick(django_capture_on_commit_callbacks)
    said: list[UUID] = []
    assert draining.dismiss(node.pk, told_at=SOON, tell=said.append)
    if change == "resume":
        draining.resume(node, by="ada", now=SOON)
    else:
        lifecycle.leave(node, now=SOON)
    assert not draining.dismiss(node.pk, told_at=SOON, tell=said.append)
    assert said == [node.pk]
    assert queued[-1] == ("nodes.stop_worker", str(node.pk), SOON.isoformat())


def test_ordering_it_twice_is_once_and_has_an_author() -> None:
    node = drained()
    for by in ("ada", "bob"):
        draining.stop_worker(node, by=by, now=NOW)
    assert node.events.get(kind="node.stop_ordered").actor == "ada"
    assert obstacles.stop_worker(node) == "The worker of gpu-1 is to stop already."


def test_what_cannot_be_stopped_is_refused_in_a_sentence() -> None:
    leaving, gone = make_node("leaving"), drained("gone")
    draining.worker_drain(leaving, now=NOW)
    lifecycle.leave(gone, now=NOW)
    for node, why in (
        (make_node("busy"), "busy is not being drained; drain it first."),
        (leaving, "The worker of leaving is stopping already."),
        (gone, "The worker of gone has stopped already."),
    ):
        with pytest.raises(InvalidMove) as refusal:
            draining.stop_worker(node, by="ada", now=NOW)
        assert str(refusal.value) == why == obstacles.stop_worker(node)
