"""What a user of the bus may say and hear; the table of those who are no node."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

# Everything the managers of a cluster tell each other and their nodes; LocalAI's names, so
# that a LocalAI frontend on the same bus would find its own.
CLUSTER = (
    "nodes.>",
    *("gallery.>", "staging.>", "prefixcache.>", "cache.>", "state.>", "responses.>"),
    *("jobs.>", "agent.>", "mcp.>", "finetune.>"),
    "clustermgr.>",  # only ours: /readyz has the server confirm a message
)
INBOXES = "_INBOX.>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Permissions:
    """Whatever is not listed is refused.

    `answer_within`: whoever sent us a request may be answered once, and no later. None: only
    what `publish` lists.
    """

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    answer_within: timedelta | None = None

    def claims(self) -> dict[str, Any]:
        """As they stand in a user's JWT."""
        listed = {"pub": {"allow": list(self.publish)}, "sub": {"allow": list(self.subscribe)}}
        if self.answer_within is None:
            return listed
        nanoseconds = round(self.answer_within.total_seconds() * 1e9)
        return {**listed, "resp": {"max": 1, "ttl": nanoseconds}}


# The manager's own processes: they ask, so answers come to inboxes of theirs.
SERVICE = Permissions(publish=CLUSTER, subscribe=(*CLUSTER, INBOXES))

# Reads and replaces account JWTs, nothing else: the system account could do far more.
SYSTEM = Permissions(
    publish=("$SYS.REQ.CLAIMS.UPDATE", "$SYS.REQ.ACCOUNT.*.CLAIMS.LOOKUP"), subscribe=(INBOXES,)
)
