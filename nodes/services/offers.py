"""Who can run what: asked of whoever keeps the inventories and reads the galleries."""

from collections.abc import Callable, Collection, Mapping

from nodes.builds import Offer

Known = Callable[[Collection[str]], Mapping[str, Offer]]
_known: dict[Known, None] = {}


def ask_about_backends(known: Known) -> None:
    """Have somebody asked which of some backends are not for every node. Twice is once."""
    _known[known] = None


def limited(backends: Collection[str]) -> dict[str, Offer]:
    """Those that not every node can run; of the others nobody knows of an obstacle."""
    found: dict[str, Offer] = {}
    for known in _known:
        found.update(known(backends))
    return found
