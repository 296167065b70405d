"""What the reference backend computes. Pure, and the same on every machine.

Tokens are words, numbers and punctuation marks in lower case; a token's id is the last 31 bits of
its 64-bit BLAKE2b hash. An embedding counts the words and the character 3- to 5-grams of a text,
each hashed to one of 256 dimensions and a sign, and is scaled to length 1 (zeros without a word).
A continuation walks a chain of word triples counted in the bundled corpus and in the model's file:
from the last two tokens, else from the last one, else from any. Temperature 0 takes the most
frequent successor (the first of the alphabet among equals), any other draws with a generator seeded
by the seed and the prompt.
"""

import hashlib
import math
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

DIMENSIONS = 256
GRAMS = (3, 4, 5)
TOKEN = re.compile(r"\w+|[^\w\s]")
CLINGING = frozenset(".,;:!?)]}")


def tokens(text: str) -> list[str]:
    return TOKEN.findall(text.lower())


def token_id(token: str) -> int:
    return _hash(token) & 0x7FFFFFFF


def embed(text: str) -> list[float]:
    vector = [0.0] * DIMENSIONS
    for feature in _features(text):
        number = _hash(feature)
        vector[number % DIMENSIONS] += 1.0 if number >> 62 & 1 else -1.0
    length = math.sqrt(sum(value * value for value in vector))
    return [value / length for value in vector] if length else vector


class Chain:
    """What follows what."""

    def __init__(self, text: str) -> None:
        self._after: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
        self.learn(text)

    def learn(self, text: str) -> None:
        known = tokens(text)
        for index, token in enumerate(known):
            for start in range(max(0, index - 2), index + 1):
                self._after[tuple(known[start:index])][token] += 1

    def walk(self, prompt: str, *, seed: int, temperature: float) -> Iterator[str]:
        """Endlessly many tokens that might follow the prompt."""
        draw = random.Random(f"{seed}\0{prompt}")
        last = tokens(prompt)[-2:]
        while True:
            successors = self._successors(last)
            if not successors:
                return
            if temperature <= 0:
                token = min(successors, key=lambda word: (-successors[word], word))
            else:
                words = sorted(successors)
                token = draw.choices(words, [successors[word] for word in words])[0]
            last = [*last, token][-2:]
            yield token

    def _successors(self, last: Sequence[str]) -> Counter[str]:
        for context in (tuple(last), tuple(last[-1:]), ()):
            if context in self._after:
                return self._after[context]
        return Counter()


def pieces(words: Iterator[str], *, limit: int, stops: Sequence[str]) -> Iterator[str]:
    """The text of at most `limit` tokens, piece by piece, up to the first stop text.

    What might be the beginning of a stop text is held back until it is decided, so the pieces put
    together are the same text however they are sent.
    """
    held = ""
    for index, word in zip(range(limit), words, strict=False):
        held += word if word in CLINGING or not index else f" {word}"
        ends = [at for stop in stops if stop and (at := held.find(stop)) >= 0]
        if ends:
            yield held[: min(ends)]
            return
        keep = _undecided(held, stops)
        yield held[: len(held) - keep]
        held = held[len(held) - keep :]
    yield held


def _undecided(text: str, stops: Sequence[str]) -> int:
    lengths = [
        size
        for stop in stops
        for size in range(1, min(len(stop), len(text) + 1))
        if text.endswith(stop[:size])
    ]
    return max(lengths, default=0)


def _features(text: str) -> Iterator[str]:
    for word in tokens(text):
        yield f"w {word}"
        framed = f"<{word}>"
        for size in GRAMS:
            for start in range(len(framed) - size + 1):
                yield f"g {framed[start : start + size]}"


def _hash(text: str) -> int:
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big")
