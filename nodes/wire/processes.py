"""How a worker names its processes, and where it reaches them."""

from dataclasses import dataclass
from typing import Self

from clustermgr.lib.errors import InvalidInput

MAX_REPLICA = 2**31 - 1  # an int32 on the wire


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessKey:
    """`model#replica`; a process installed without a model has its backend's name there."""

    model_id: str
    replica_index: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Split at the *last* #, as a model's name may contain one."""
        model, _, index = text.rpartition("#")
        number = int(index) if index.isascii() and index.isdigit() and len(index) <= 10 else -1
        if not model or not 0 <= number <= MAX_REPLICA:
            raise InvalidInput("A process key is a model's name, a # and a whole number.")
        return cls(model_id=model, replica_index=number)

    def __str__(self) -> str:
        return f"{self.model_id}#{self.replica_index}"


def loopback(address: str) -> str:
    """The address as the worker itself knows it.

    It records `127.0.0.1:port` for each process, tells us `advertised-host:port`, and compares
    byte for byte: the address we stored would never match.
    """
    _, _, port = address.rpartition(":")
    known = port.isascii() and port.isdigit() and len(port) <= 5
    if not known or not 0 < int(port) < 2**16:
        raise InvalidInput("The address of a process must end in its port, as in 10.0.0.7:50052.")
    return f"127.0.0.1:{int(port)}"
