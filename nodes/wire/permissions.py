"""What the credential of a node allows, generated from the registry of subjects.

Nothing that a node may hear is also something it may say. The server lets a node answer
whatever reached it with a reply address, and believes any reply address: a node that could send
itself a message could answer it to anywhere, in anybody's name.
"""

from datetime import timedelta
from uuid import UUID

from clustermgr.lib.natsauth import Permissions
from nodes.wire.http import AGENT
from nodes.wire.subjects import SUBJECTS, Role

# LocalAI's agents work from queues that all of them share, so these are not per node. They say
# and hear the same subjects; therefore they get no right to answer but the inboxes themselves,
# of which they know only those they were told.
AGENTS_SAY = ("agent.>", "jobs.>", "_INBOX.>")
AGENTS_HEAR = (
    *("agent.execute", "agent.*.cancel", "mcp.tools.execute", "mcp.discovery"),
    *("jobs.mcp-ci.new", "jobs.*.cancel", "jobs.*.progress", "jobs.*.result"),
    *("gallery.*.cancel", "gallery.*.progress", "staging.*.progress"),
)


def role_of(node_type: str) -> Role:
    return Role.AGENT if node_type == AGENT else Role.WORKER


def permissions_of(role: Role, node_id: UUID | str, *, answer_within: timedelta) -> Permissions:
    """The subjects of one node, and what its role shares with others of its kind."""
    says = tuple(each.any_of(node_id) for each in SUBJECTS if each.publisher == role)
    hears = tuple(each.any_of(node_id) for each in SUBJECTS if role in each.subscribers)
    if role is Role.AGENT:
        return Permissions(publish=(*says, *AGENTS_SAY), subscribe=(*hears, *AGENTS_HEAR))
    return Permissions(publish=says, subscribe=hears, answer_within=answer_within)
