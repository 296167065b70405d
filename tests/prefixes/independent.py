"""xxHash64 and LocalAI's chain once more, from their descriptions; slow, and not ours."""

ONES = (1 << 64) - 1
P1, P2, P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P4, P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def rotated(value: int, by: int) -> int:
    return ((value << by) | (value >> (64 - by))) & ONES


def round_of(lane: int, word: int) -> int:
    return rotated((lane + word * P2) & ONES, 31) * P1 & ONES


def word(data: bytes, at: int, size: int = 8) -> int:
    return int.from_bytes(data[at : at + size], "little")


def xxh64(data: bytes) -> int:
    """Of seed 0."""
    at, total = 0, P5
    if len(data) >= 32:
        lanes = [(P1 + P2) & ONES, P2, 0, -P1 & ONES]
        while at + 32 <= len(data):
            lanes = [round_of(lane, word(data, at + 8 * n)) for n, lane in enumerate(lanes)]
            at += 32
        total = sum(rotated(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True))
        for lane in lanes:
            total = ((total ^ round_of(0, lane)) * P1 + P4) & ONES
    total = (total + len(data)) & ONES
    while at + 8 <= len(data):
        total = (rotated(total ^ round_of(0, word(data, at)), 27) * P1 + P4) & ONES
        at += 8
    if at + 4 <= len(data):
        total = (rotated(total ^ (word(data, at, 4) * P1 & ONES), 23) * P2 + P3) & ONES
        at += 4
    for byte in data[at:]:
        total = rotated(total ^ (byte * P5 & ONES), 11) * P1 & ONES
    total = (total ^ (total >> 33)) * P2 & ONES
    total = (total ^ (total >> 29)) * P3 & ONES
    return total ^ (total >> 32)


def chain(text: str, model: str) -> tuple[int, ...]:
    data, links, last = text.encode(), [], xxh64(model.encode())
    for number in range(min(-(-len(data) // 256), 64)):
        last = xxh64(last.to_bytes(8, "little") + data[256 * number : 256 * number + 256])
        links.append(last)
    return tuple(links)
