"""A replacement where the maximum leaves no room beside the old one: the old one goes first.

One at a time, and only when nothing else of the model comes or goes, so that of two or more all
but one keep running. With a maximum of one there is a gap: the maximum is the operator's word, a
replica more for a while is not ours to allow.
"""

from scheduling.planning.drafts import Draft
from scheduling.planning.standing import Standing
from scheduling.states import Cause


def make_way(draft: Draft, standing: Standing) -> str:
    """Let one old replica go, or none while others are on their way; what there is to say."""
    limit = standing.rule.max_replicas
    if standing.coming or standing.leaving:
        return f"One after the other: max_replicas is {limit}."
    old = next((row for row in standing.replaceable if row.in_flight == 0), None)
    if old is None:
        return f"max_replicas is {limit}, and those to be replaced answer requests."
    cause = Cause.DRAIN if old in standing.stranded else Cause.REPLACE
    reason = f"Makes way for its replacement: max_replicas is {limit}."
    draft.stop(standing, old, cause, reason, gap=True)
    if limit > 1:
        return f"One after the other: max_replicas is {limit}."
    return "Nothing serves until it is loaded: max_replicas is 1. Raise it to 2 for no gap."
