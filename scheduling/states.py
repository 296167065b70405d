"""The words of load jobs and decisions, and how they may change. Read first."""

from django.db.models import TextChoices

from clustermgr.lib.machine import Moves


class JobState(TextChoices):
    PENDING = "pending"  # decided; its slot and memory are taken; waits for a process of ours
    INSTALLING = "installing"  # the node is having the backend and starting a process
    STAGING = "staging"  # files on their way
    LOADING = "loading"  # the backend was asked to load
    LOADED = "loaded"
    FAILED = "failed"  # the reconciler decides anew, after a pause
    CANCELLED = "cancelled"  # nobody wants it any more


JOB_MOVES: Moves = {
    JobState.PENDING: frozenset({JobState.INSTALLING, JobState.FAILED, JobState.CANCELLED}),
    JobState.INSTALLING: frozenset(
        {JobState.PENDING, JobState.STAGING, JobState.FAILED, JobState.CANCELLED}
    ),
    JobState.STAGING: frozenset(
        {JobState.PENDING, JobState.LOADING, JobState.FAILED, JobState.CANCELLED}
    ),
    JobState.LOADING: frozenset(
        {JobState.PENDING, JobState.LOADED, JobState.FAILED, JobState.CANCELLED}
    ),
    JobState.LOADED: frozenset(),
    JobState.FAILED: frozenset(),
    JobState.CANCELLED: frozenset(),
}

# A slot has at most one of these; each has a lease or a time at which it goes on
ACTIVE = (JobState.PENDING, JobState.INSTALLING, JobState.STAGING, JobState.LOADING)
HELD = (JobState.INSTALLING, JobState.STAGING, JobState.LOADING)  # a process of ours is at it


class Cause(TextChoices):
    """Why a replica is wanted, or no longer."""

    FLOOR = "floor"  # fewer than the minimum
    SPREAD = "spread"  # one on every matching node
    BURST = "burst"  # all replicas are busy
    PRESSURE = "pressure"  # those that have seen the prompts are too busy
    REPLACE = "replace"  # its model was edited
    DRAIN = "drain"  # its node is being emptied
    REQUEST = "request"  # somebody asked for an answer
    OPERATOR = "operator"
    IDLE = "idle"  # unused for a while, and more than the minimum
    CEILING = "ceiling"  # more than the maximum, or not wanted at all
    EVICTED = "evicted"  # makes room for a model that may take it


class Cutover(TextChoices):
    """How an edit reaches the replicas that run."""

    AT_ONCE = "at_once"  # none of an old revision serves from this moment on
    ROLLING = "rolling"  # each serves until one of the new revision stands in for it


class RoutePolicy(TextChoices):
    INHERIT = ""
    ROUND_ROBIN = "round_robin"
    PREFIX_CACHE = "prefix_cache"  # to whoever has seen the beginning of the prompt
    PREFIX_SHADOW = "prefix_shadow"  # round robin; only counts what prefix_cache would have done


class Strategy(TextChoices):
    SPREAD = "spread"  # over as many nodes as possible
    BINPACK = "binpack"  # onto as few as possible
