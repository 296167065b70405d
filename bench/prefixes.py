"""The longest match among a million links, against bare look-ups; and what a link costs."""

import gc
import random
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from uuid import UUID

from bench import harness
from scheduling.prefixes.chains import DEPTH, WINDOW, Chain, chain_of
from scheduling.prefixes.index import Limits, PrefixIndex, Seat

ENTRIES = 1_000_000
WEIGHED = ENTRIES // 4  # fills its dictionary as much; tracing is slow
ROUNDS = 20_000
NOW = 1_900_000_000.0
SEATS = [Seat(UUID(int=n), UUID(int=n // 2), n % 2) for n in range(64)]
LIMITS = Limits(entries=ENTRIES)


def run() -> None:
    chance = random.Random(7)
    _memory(chance)
    prompts = list(islice(_agents(chance), ENTRIES // 32))
    index = _filled(prompts)
    bare = {link: prompt for prompt in prompts for link in prompt}
    print(f"{len(index):,} links of {len(prompts):,} prompts of {DEPTH} windows, 64 replicas")
    known, strange = chance.sample(prompts, 2000), list(islice(_agents(chance), 2000))
    halves = [
        (*one[: DEPTH // 2], *other[DEPTH // 2 :])
        for one, other in zip(known, strange, strict=True)
    ]
    rows = [
        ("a bare look-up", *_times(lambda chain: bare.get(chain[0]), known)),
        (
            f"{DEPTH} bare look-ups",
            *_times(lambda chain: [bare.get(link) for link in chain], strange),
        ),
        ("match of all", *_times(lambda chain: index.match("m", chain, now=NOW), known)),
        ("match of half", *_times(lambda chain: index.match("m", chain, now=NOW), halves)),
        ("match of nothing", *_times(lambda chain: index.match("m", chain, now=NOW), strange)),
        ("match and cold order", *_times(lambda chain: index.look("m", chain, now=NOW), halves)),
        (
            "record once more",
            *_times(lambda chain: index.record("m", chain, SEATS[0], now=NOW), known),
        ),
        (
            "record, evicting",
            *_times(lambda chain: index.record("m", chain, SEATS[1], now=NOW), strange),
        ),
    ]
    harness.table(("", "p50 us", "p99 us"), rows)
    print("goal: a match under 50 us")
    text = "x" * WINDOW * DEPTH
    hashing, _ = _times(lambda _: chain_of(text, model="m"), known)
    print(f"hashing {WINDOW * DEPTH:,} bytes: {hashing:.1f} us")


def _times(work: Callable[[Chain], object], chains: Sequence[Chain]) -> tuple[float, float]:
    took = []
    for number in range(ROUNDS):
        chain = chains[number % len(chains)]
        started = time.thread_time_ns()  # of this thread alone: others may want the core, too
        work(chain)
        took.append((time.thread_time_ns() - started) / 1000)
    cuts = statistics.quantiles(took, n=100)
    return cuts[49], cuts[98]


def _memory(chance: random.Random) -> None:
    rows = []
    for name, made in (
        ("64 windows, nothing shared", _strangers(chance, DEPTH)),
        ("16 windows, nothing shared", _strangers(chance, 16)),
        ("agents: 32 shared, 32 own", _agents(chance)),
        ("chats: turn after turn", _chats(chance)),
        ("questions: 8 shared, 2 own", _questions(chance, 2)),
        ("questions: 8 shared, 1 own", _questions(chance, 1)),
    ):
        rows.append((name, *_cost(made)))
    harness.table(("memory", "links", "bytes/link"), rows)


def _cost(prompts: Iterable[Chain]) -> tuple[str, float]:
    index = PrefixIndex(LIMITS)
    gc.collect()
    tracemalloc.start()
    for number, prompt in enumerate(prompts):
        index.record("m", prompt, SEATS[number % len(SEATS)], now=NOW + number / 1e6)
        if len(index) > WEIGHED - DEPTH:
            break
    del prompt, prompts
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return f"{len(index):,}", held / len(index)


def _filled(prompts: Sequence[Chain]) -> PrefixIndex:
    index = PrefixIndex(LIMITS)
    for number, prompt in enumerate(prompts):
        index.record("m", prompt, SEATS[number % len(SEATS)], now=NOW)
    return index


def _links(chance: random.Random, count: int) -> Chain:
    return tuple(chance.getrandbits(64) for _ in range(count))


def _strangers(chance: random.Random, depth: int) -> Iterable[Chain]:
    while True:
        yield _links(chance, depth)


def _agents(chance: random.Random) -> Iterable[Chain]:
    """Long instructions of one of a hundred agents, then its own work."""
    heads = [_links(chance, DEPTH // 2) for _ in range(100)]
    while True:
        yield (*chance.choice(heads), *_links(chance, DEPTH // 2))


def _questions(chance: random.Random, own: int) -> Iterable[Chain]:
    heads = [_links(chance, 8) for _ in range(100)]
    while True:
        yield (*chance.choice(heads), *_links(chance, own))


def _chats(chance: random.Random) -> Iterable[Chain]:
    """Each turn is three windows longer, and its last window was a short one before."""
    while True:
        so_far: Chain = ()
        for _ in range(12):
            so_far = (*so_far[:-1], *_links(chance, 4))
            yield so_far
