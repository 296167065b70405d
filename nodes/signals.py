"""Facts told to whoever stands above, after commit, in this process only.

A receiver may nudge (clear a cooldown, queue a tick); it never holds truth.
"""

from django.dispatch import Signal

capacity_changed = Signal()  # node_id: UUID; something new may fit somewhere
room_came = Signal()  # some nodes report more free memory or disk than before
service_lost = Signal()  # what served does not, or not for long: others may have to stand in
replica_removed = Signal()  # node_id: UUID, model_name: str, replica_index: int, reason: str
replica_unloading = Signal()  # replica_id: UUID; its process has to be stopped, exactly it
