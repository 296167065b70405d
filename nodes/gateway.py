"""What one node can be asked, typed. Knows the wire, never a row.

Every question ends in one of these: a typed result; NodeRefused, with the worker's words;
NodeUnreachable, nobody listens and nothing happened; NodeSilent, it was delivered and may still
be under way; NodeVanished, it was delivered and the worker died at it (NodeRestarted: and is
back); NotConnected or Interrupted, which say nothing about the node.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from django.conf import settings

from clustermgr.conf import ClusterSettings
from clustermgr.lib.bus import Bus, Quiet
from clustermgr.lib.errors import (
    BusError,
    InvalidInput,
    NodeRefused,
    NodeRestarted,
    NodeSilent,
    NodeUnreachable,
    NodeVanished,
)
from nodes import outcomes, wire
from nodes.outcomes import Deleted, ExactStop, Installed, Upgraded
from nodes.progress import Forward
from nodes.wire import subjects

log = logging.getLogger(__name__)

TICKS_PER_SECOND = 4.0  # as often as workers send them
PROBE_TIMEOUT = timedelta(seconds=5)
# After a restart of NATS we may be back before the worker is: one look proves nothing
ABSENCES = 2

OnProgress = Callable[[wire.InstallProgress], None]
Restarted = Callable[[], bool]  # whether the worker that was asked is another process by now


@dataclass(frozen=True, slots=True)
class NodeGateway:
    bus: Bus
    cluster: ClusterSettings = field(default_factory=lambda: settings.CLUSTER)
    clock: Callable[[], float] = time.monotonic

    def install(
        self,
        node_id: UUID,
        *,
        backend: str,
        model_id: str = "",
        replica_index: int = 0,
        galleries: Sequence[wire.Gallery] = (),
        uri: str = "",
        name: str = "",
        alias: str = "",
        force: bool = False,
        op_id: str = "",
        on_progress: OnProgress | None = None,
        restarted: Restarted | None = None,
    ) -> Installed:
        """Have a process of `backend` for this model and slot; asking again is harmless.

        Without a model the process is known by the backend's name. Progress is handed over on
        this thread, in order, and never after the answer.
        """
        request = wire.InstallRequest(
            backend=_required("backend", backend),
            model_id=model_id,
            replica_index=replica_index,
            backend_galleries=tuple(galleries),
            uri=uri,
            name=name,
            alias=alias,
            force=force,
            op_id=op_id,
        )
        quiet = self._looking_after(node_id, restarted)
        return self._install(node_id, request, self.cluster.install_timeout, on_progress, quiet)

    def upgrade(
        self,
        node_id: UUID,
        *,
        backend: str,
        replica_index: int = 0,
        galleries: Sequence[wire.Gallery] = (),
        uri: str = "",
        name: str = "",
        alias: str = "",
        op_id: str = "",
        on_progress: OnProgress | None = None,
        restarted: Restarted | None = None,
    ) -> Upgraded:
        """Replace the backend's files and stop all its processes.

        A worker from before May 2026 does not listen to this: it is told to install by force,
        once. If nobody listens to that either, the node is away.
        """
        request = wire.UpgradeRequest(
            backend=_required("backend", backend),
            replica_index=replica_index,
            backend_galleries=tuple(galleries),
            uri=uri,
            name=name,
            alias=alias,
            op_id=op_id,
        )
        timeout = self.cluster.upgrade_timeout
        subject = subjects.UPGRADE.of(node_id)
        quiet = self._looking_after(node_id, restarted)
        try:
            answer = self._follow(node_id, subject, request, timeout, on_progress, quiet)
        except NodeUnreachable:
            log.info("upgrade falls back to a forced install", extra={"node": str(node_id)})
            self._install(node_id, _by_force(request), timeout, on_progress, quiet)
            return Upgraded(stopped=(), reports_stopped=False, fell_back=True)
        return Upgraded.read(answer)

    def cancel(self, node_id: UUID, *, op_id: str) -> bool:
        """Have an install or an upgrade given up; False: too late, or nothing there to give up.

        NodeUnreachable also when the worker is LocalAI's: it does not listen, and will finish.
        """
        request = wire.CancelRequest(op_id=_required("op_id", op_id))
        subject = subjects.CANCEL.of(node_id)
        answer = self.bus.request(subject, request.encode(), timeout=self.cluster.running_timeout)
        return wire.CancelReply.decode(answer).cancelled

    def delete(self, node_id: UUID, *, backend: str, restarted: Restarted | None = None) -> Deleted:
        """Stop the backend's processes and remove its files."""
        request = wire.DeleteRequest(backend=_required("backend", backend))
        answer = self.bus.request(
            subjects.DELETE_BACKEND.of(node_id),
            request.encode(),
            timeout=self.cluster.delete_timeout,
            quiet=self._looking_after(node_id, restarted),
        )
        return Deleted.read(answer)

    def list_backends(self, node_id: UUID) -> tuple[wire.InstalledBackend, ...]:
        """What is on the node's disk; raises rather than guess an empty list."""
        subject = subjects.LIST_BACKENDS.of(node_id)
        answer = self.bus.request(subject, wire.LIST_REQUEST, timeout=self.cluster.list_timeout)
        return outcomes.installed_backends(answer)

    def list_backends_of(
        self, node_ids: Sequence[UUID]
    ) -> dict[UUID, tuple[wire.InstalledBackend, ...] | BusError | NodeRefused]:
        """What is on the disks of many nodes; for each that did not tell, the reason instead."""
        answers = self.bus.request_each(
            [subjects.LIST_BACKENDS.of(node_id) for node_id in node_ids],
            wire.LIST_REQUEST,
            timeout=self.cluster.list_timeout,
        )
        told = zip(node_ids, answers, strict=True)
        return {node_id: outcomes.backends_or_reason(answer) for node_id, answer in told}

    def listens(self, node_id: UUID) -> bool:
        """Whether anybody is there, by the question that every worker knows; slow is there."""
        subject = subjects.LIST_BACKENDS.of(node_id)
        try:
            self.bus.request(subject, wire.LIST_REQUEST, timeout=PROBE_TIMEOUT)
        except NodeUnreachable:
            return False
        except NodeSilent:
            pass
        return True

    def running_models(self, node_id: UUID) -> tuple[wire.RunningModel, ...]:
        """The backend processes alive on the node; raises rather than guess an empty list."""
        subject = subjects.RUNNING_MODELS.of(node_id)
        answer = self.bus.request(
            subject, wire.RUNNING_MODELS_REQUEST, timeout=self.cluster.running_timeout
        )
        return wire.decode_running(answer)

    def running_models_of(
        self, node_ids: Sequence[UUID]
    ) -> dict[UUID, tuple[wire.RunningModel, ...] | BusError | NodeRefused]:
        """The processes of many nodes; for each that did not tell, the reason instead."""
        answers = self.bus.request_each(
            [subjects.RUNNING_MODELS.of(node_id) for node_id in node_ids],
            wire.RUNNING_MODELS_REQUEST,
            timeout=self.cluster.running_timeout,
        )
        told = zip(node_ids, answers, strict=True)
        return {node_id: outcomes.running_or_reason(answer) for node_id, answer in told}

    def stop_backend(self, node_id: UUID, *, backend: str, force: bool = False) -> None:
        """Tell the node to stop a backend, a model or one process key; nobody confirms it."""
        request = wire.StopRequest(backend=_required("backend", backend), force=force)
        self.bus.publish(subjects.STOP_BACKEND.of(node_id), request.encode())

    def stop_everything(self, node_id: UUID, *, force: bool = False) -> None:
        """Tell the node to stop all its backend processes; nobody confirms it."""
        request = wire.StopRequest(backend="", force=force)
        self.bus.publish(subjects.STOP_BACKEND.of(node_id), request.encode())

    def unload(self, node_id: UUID, *, model_name: str, address: str) -> None:
        """Have the process at `address` free its memory; it stays alive, and may ignore us.

        Never without an address: the worker would free a process of its choice.
        """
        request = wire.UnloadRequest(model_name=model_name, address=wire.loopback(address))
        subject = subjects.UNLOAD_MODEL.of(node_id)
        answer = self.bus.request(subject, request.encode(), timeout=self.cluster.unload_timeout)
        outcomes.done(answer)

    def stop_model(
        self,
        node_id: UUID,
        *,
        model_name: str,
        replica_index: int,
        address: str,
        force: bool = False,
        config_revision: str = "",
    ) -> ExactStop:
        """Stop exactly this process, if it is still the one that we stored `address` of.

        After NodeSilent, `running_models` tells how it ended.
        """
        name = _required("model_name", model_name)
        request = wire.ModelStopRequest(
            model_name=name,
            process_key=str(wire.ProcessKey(model_id=name, replica_index=replica_index)),
            expected_address=wire.loopback(address),
            force=force,
            config_revision=config_revision,
        )
        subject = subjects.STOP_MODEL.of(node_id)
        answer = self.bus.request(subject, request.encode(), timeout=self.cluster.stop_timeout)
        return ExactStop.read(answer)

    def delete_model(self, node_id: UUID, *, model_name: str) -> None:
        """Remove a model's files; what runs goes on."""
        request = wire.DeleteModelRequest(model_name=_required("model_name", model_name))
        subject = subjects.DELETE_MODEL.of(node_id)
        timeout = self.cluster.model_delete_timeout
        answer = self.bus.request(subject, request.encode(), timeout=timeout)
        outcomes.done(answer)

    def stop_node(self, node_id: UUID) -> None:
        """Tell the worker to drain and exit; nobody confirms it."""
        self.bus.publish(subjects.STOP_NODE.of(node_id), wire.NOTHING)

    def _install(
        self,
        node_id: UUID,
        request: wire.InstallRequest,
        timeout: timedelta,
        on_progress: OnProgress | None,
        quiet: Quiet,
    ) -> Installed:
        subject = subjects.INSTALL.of(node_id)
        answer = self._follow(node_id, subject, request, timeout, on_progress, quiet)
        return Installed.read(answer)

    def _follow(
        self,
        node_id: UUID,
        subject: str,
        request: wire.InstallRequest | wire.UpgradeRequest,
        timeout: timedelta,
        on_progress: OnProgress | None,
        quiet: Quiet,
    ) -> bytes:
        """Ask, and hand over what the worker tells before it answers, if anybody listens."""
        payload = request.encode()
        if not request.op_id or not on_progress:
            return self.bus.request(subject, payload, timeout=timeout, quiet=quiet)
        forward = Forward(per_second=TICKS_PER_SECOND)

        def hear(event: bytes) -> None:
            tick = _tick(event, request.op_id)
            shown = forward.offer(tick, at=self.clock()) if tick else None
            if shown:
                on_progress(shown)

        def hear_the_rest() -> None:
            if held := forward.rest():
                on_progress(held)

        events = subjects.INSTALL_PROGRESS.of(node_id, op=request.op_id)
        try:
            answer = self.bus.request(
                subject, payload, timeout=timeout, events=events, on_event=hear, quiet=quiet
            )
        except (NodeSilent, NodeVanished):
            hear_the_rest()
            raise
        hear_the_rest()
        return answer

    def _looking_after(self, node_id: UUID, restarted: Restarted | None) -> Quiet:
        """While a long command is quiet, see whether whoever heard it is still there."""
        absences = 0

        def look() -> None:
            nonlocal absences
            try:
                self.bus.request(
                    subjects.LIST_BACKENDS.of(node_id), wire.LIST_REQUEST, timeout=PROBE_TIMEOUT
                )
            except NodeUnreachable:
                absences += 1
            except BusError:  # busy is alive, and being cut off ourselves says nothing
                return
            else:
                absences = 0
                # A supervisor brings a worker back sooner than two looks could miss it
                if restarted and restarted():
                    raise NodeRestarted("The worker was restarted before it had answered.")
            if absences >= ABSENCES:
                raise NodeVanished("The worker stopped listening before it had answered.")

        return Quiet(after=self.cluster.probe_after, do=look)


def _tick(event: bytes, op_id: str) -> wire.InstallProgress | None:
    """Read one event; nonsense, and what belongs to a namesake of our subject, is skipped."""
    try:
        tick = wire.InstallProgress.decode(event)
    except NodeRefused as nonsense:
        log.debug("progress event skipped", extra={"reason": str(nonsense)})
        return None
    return tick if tick.op_id == op_id else None


def _by_force(request: wire.UpgradeRequest) -> wire.InstallRequest:
    return wire.InstallRequest(
        backend=request.backend,
        backend_galleries=request.backend_galleries,
        uri=request.uri,
        name=request.name,
        alias=request.alias,
        replica_index=request.replica_index,
        force=True,
        op_id=request.op_id,
    )


def _required(key: str, value: str) -> str:
    # An empty backend means "everything" to a stop and downloads in vain in an install
    if not value.strip():
        raise InvalidInput(f"{key} is required.")
    return value
