"""A prompt as a chain of hashes, the same in every process and in LocalAI's.

Each link stands for the whole text up to it: two prompts share a link exactly when they share
everything before its end.
"""

from functools import lru_cache

from xxhash import xxh64_digest, xxh64_intdigest

WINDOW = 256  # bytes
DEPTH = 64  # windows; what comes later tells prompts apart too rarely to be worth its room
READ = WINDOW * DEPTH

Chain = tuple[int, ...]


def chain_of(text: str, *, model: str) -> Chain:
    """The links of a text, shallow to deep; none of an empty one.

    `model` is the name that routing knows it by: no two models share a link.
    """
    # No character takes less than a byte: what is cut off here could never be read
    head = text[:READ].encode(errors="surrogatepass")[:READ]
    links, salt = [], _salt(model)
    for start in range(0, len(head), WINDOW):
        link = xxh64_intdigest(salt + head[start : start + WINDOW])
        links.append(link)
        salt = link.to_bytes(8, "little")
    return tuple(links)


@lru_cache(maxsize=1024)
def _salt(model: str) -> bytes:
    return xxh64_digest(model.encode(errors="surrogatepass"))[::-1]  # big-endian as it comes
