"""Which machines a backend runs on, as far as anybody knows. Pure.

Scheduling must know it and backendops does: this is what one tells the other, by way of
nodes.services.offers.
"""

from collections.abc import Collection
from typing import NamedTuple
from uuid import UUID

PLAIN = "default"  # the capability of a build that runs anywhere


class Offer(NamedTuple):
    """One backend that does not come to every machine by itself."""

    installed: frozenset[UUID]  # nodes that have it
    told: frozenset[UUID]  # nodes that said what they have; who never did may have it
    builds: frozenset[str]  # the capabilities that a gallery has a build for; none: no gallery

    def reaches(self, node: UUID, capability: str) -> bool:
        """Whether it is there, may be there, or would be installed by the first load."""
        return (
            node in self.installed or node not in self.told or suits(capability, among=self.builds)
        )


def suits(capability: str, *, among: Collection[str]) -> bool:
    """Exactly, by family (nvidia-cuda-12 is nvidia), or by a build that runs anywhere."""
    mine = capability or PLAIN
    return mine in among or mine.split("-")[0] in among or PLAIN in among
