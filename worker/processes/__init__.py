"""Backend processes: their ports, their lives, their last words."""

from worker.processes.logs import RingLogs
from worker.processes.ports import Ports
from worker.processes.real import RealProcesses, Timing

__all__ = ["Ports", "RealProcesses", "RingLogs", "Timing"]
