"""Seeded trouble: machines that hang, crash and come back while somebody watches."""

import asyncio
import logging

from worker.fleet.nodes import Fleet, Node, State

log = logging.getLogger(__name__)


def _runs(node: Node) -> bool:
    return node.state is State.RUNNING


def _is_down(node: Node) -> bool:
    return node.state is not State.RUNNING


async def silence_share(fleet: Fleet, rate: float) -> None:
    """Let this share of the fleet fall silent."""
    fleet.silence(fleet.some(round(rate * len(fleet.listed())), among=_runs))


async def keep_troubling(fleet: Fleet, *, every: float) -> None:
    """Again and again, one node hangs, crashes or recovers."""
    while True:
        await asyncio.sleep(every)
        verb = fleet.chance.choice(("silence", "crash", "wake", "wake"))
        names = fleet.some(1, among=_is_down if verb == "wake" else _runs)
        if not names:
            continue
        log.info("chaos", extra={"verb": verb, "node": names[0]})
        if verb == "silence":
            fleet.silence(names)
        elif verb == "crash":
            await fleet.crash(names)
        else:
            await fleet.wake(names)
