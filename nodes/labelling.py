"""What a label may be, and which labels a machine carries without anybody's asking; pure."""

import re
from collections.abc import Mapping

from clustermgr.lib.errors import InvalidInput

MAX_KEY = 128
MAX_VALUE = 255
MAX_LABELS = 64  # of one owner on one node

_KEY = re.compile(rf"[A-Za-z0-9._/-]{{1,{MAX_KEY}}}")

GIB = 2**30
# Sizes cards are sold in: "at least this much" is what a selector wants to say.
VRAM_BUCKETS = ((80, "80GB+"), (48, "48GB"), (24, "24GB"), (16, "16GB"), (8, "8GB"))

# Ours to compute. Workers send some of these, too, and would freeze them at what they were
# started with.
AUTO_KEYS = frozenset({"gpu.vendor", "gpu.vram", "node.name", "node.replica-slots"})


def check_all(labels: Mapping[str, object]) -> dict[str, str]:
    """`labels`, if one owner may set them on one node."""
    if len(labels) > MAX_LABELS:
        raise InvalidInput(f"A node has at most {MAX_LABELS} labels of each owner.")
    return {check_key(key): check_value(value) for key, value in labels.items()}


def check_key(key: object) -> str:
    """`key`, if a label may be called so."""
    if isinstance(key, str) and _KEY.fullmatch(key):
        return key
    raise InvalidInput(
        f"A label key has 1 to {MAX_KEY} letters, digits, dots, slashes, dashes or underscores; "
        f"{shown(key)} is none."
    )


def check_value(value: object) -> str:
    """`value`, if a label may have it."""
    if isinstance(value, str) and len(value) <= MAX_VALUE and value.isprintable():
        return value
    raise InvalidInput(
        f"A label value is at most {MAX_VALUE} printable characters; {shown(value)} is none."
    )


def auto_labels(
    *, name: str, gpu_vendor: str, total_vram: int, slots: int, arch: str = "", os: str = ""
) -> dict[str, str]:
    """What selectors may rely on for every node, from its own facts; what is unknown is absent."""
    known = {
        "node.name": name,
        "node.replica-slots": str(max(slots, 1)),
        "gpu.vendor": gpu_vendor,
        "gpu.vram": vram_bucket(total_vram) if total_vram > 0 else "",
        "node.arch": arch,
        "node.os": os,
    }
    return {key: value for key, value in known.items() if value}


def vram_bucket(total: int) -> str:
    """The largest common card size that `total` bytes reach."""
    whole = total // GIB
    for floor, name in VRAM_BUCKETS:
        if whole >= floor:
            return name
    return f"{whole}GB"


def shown(anything: object) -> str:
    """A stranger's input, safe to repeat in a sentence."""
    text = ascii(anything)
    return text if len(text) <= 60 else f"{text[:60]}…"
