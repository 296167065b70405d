"""What a model's page shows; each tab reads only what it needs, and has an address of its own."""

from collections.abc import Callable
from typing import Any

from django.db.models import Max
from django.http import HttpRequest
from django.utils import timezone

from nodes.admin.nodepage import page_number
from nodes.models import ClusterEvent, NodeModel
from nodes.presenting.displays import ago
from nodes.presenting.words import in_words
from scheduling.models import LoadJob, ModelLoadInfo, PlacementDecision
from scheduling.presenting import options, requests, rows, ruleform, words
from scheduling.services import standing
from scheduling.states import ACTIVE

PER_PAGE = 25
MOST_SLOTS = 100  # on one node; what higher ones went through is in the list of all events
MOST_REPLICAS = 200
MOST_VERDICTS = 200


def _replicas(request: HttpRequest, model: ModelLoadInfo) -> dict[str, Any]:
    return running(model.model_name, request=request)


def running(name: str, *, request: HttpRequest) -> dict[str, Any]:
    """Replicas and loads under way: the part of the page that a refresh replaces."""
    now = timezone.now()
    found = NodeModel.objects.filter(model_name=name).select_related("node")
    active = LoadJob.objects.filter(model_name=name, state__in=ACTIVE).select_related("node")
    known = ModelLoadInfo.objects.filter(pk=name).values_list("config_revision", flat=True)
    return {
        "revision": known.first() or "",
        "replicas": [
            (one, ago(one.last_used, now=now) if one.last_used else "never")
            for one in found.order_by("node__name", "replica_index")[:MOST_REPLICAS]
        ],
        "active": [words.job_line(job, now=now) for job in active.order_by("id")],
        "now": now,
        "may_operate": request.user.has_perm("scheduling.operate_model"),
    }


def _requests(request: HttpRequest, model: ModelLoadInfo) -> dict[str, Any]:
    may_load = request.user.has_perm("scheduling.request_route")
    return {**asked(model.model_name, request=request), "may_load": may_load}


def asked(name: str, *, request: HttpRequest) -> dict[str, Any]:
    """Requests of this moment and of the last hour: the part that a refresh replaces."""
    now = timezone.now()
    return {
        "hour": requests.last_hour(name, now=now),
        "resting": requests.resting(name, now=now),
        **requests.leases(name, now=now),
        "may_operate": request.user.has_perm("scheduling.operate_model"),
    }


def _definition(request: HttpRequest, model: ModelLoadInfo) -> dict[str, Any]:
    shown, rest = options.inputs(model.options)
    return {
        "may_edit": request.user.has_perm("scheduling.change_modelloadinfo"),
        "shown_options": shown,
        "more_options": rest,
        "kept": {
            "backend": model.backend,
            "size": _size(model.size_bytes),
            "vram": _size(model.vram_bytes),
            "concurrency_group": model.concurrency_group,
        },
    }


def _size(count: int | None) -> str:
    return "" if count is None else words.amount(int(count))


def _rule(request: HttpRequest, model: ModelLoadInfo) -> dict[str, Any]:
    rule = standing.one(model.model_name).rule
    may = request.user.has_perm("scheduling.change_modelschedulingconfig")
    return {**ruleform.context(model.model_name, rule), "may_rule": may}


def _jobs(request: HttpRequest, model: ModelLoadInfo) -> dict[str, Any]:
    now = timezone.now()
    found = LoadJob.objects.filter(model_name=model.model_name).select_related("node")
    page = page_of_rows(request, found)
    return {**page, "jobs": [words.job_line(job, now=now) for job in page["found"]]}


def _decisions(request: HttpRequest, model: ModelLoadInfo) -> dict[str, Any]:
    found = PlacementDecision.objects.filter(model_name=model.model_name).select_related("node")
    page = page_of_rows(request, found)
    return {
        **page,
        "decisions": [
            (
                one,
                words.CAUSES.get(one.cause, one.cause),
                one.verdicts[:MOST_VERDICTS],
                max(len(one.verdicts) - MOST_VERDICTS, 0),
            )
            for one in page["found"]
        ],
    }


def _events(request: HttpRequest, model: ModelLoadInfo) -> dict[str, Any]:
    name = model.model_name
    highest = LoadJob.objects.filter(model_name=name).aggregate(at=Max("replica_index"))["at"]
    slots = range(min((highest or 0) + 1, MOST_SLOTS))
    about = ClusterEvent.objects.filter(subject__in=[name, *(f"{name}#{slot}" for slot in slots)])
    page = page_of_rows(request, about.select_related("node"))
    return {**page, "events": [(one, in_words(one.kind)) for one in page["found"]]}


def page_of_rows(request: HttpRequest, found: Any) -> dict[str, Any]:
    number = page_number(request)
    start = (number - 1) * PER_PAGE
    page = list(found[start : start + PER_PAGE + 1])
    return {
        "found": page[:PER_PAGE],
        "older": number + 1 if len(page) > PER_PAGE else None,
        "newer": number - 1 if number > 1 else None,
    }


# name -> (what it reads, a permission beyond that of seeing the model); drawn by tab_<name>.html
Tab = tuple[Callable[[HttpRequest, ModelLoadInfo], dict[str, Any]], str]
TABS: dict[str, Tab] = {
    "replicas": (_replicas, "nodes.view_nodemodel"),
    "requests": (_requests, "scheduling.view_routelease"),
    "definition": (_definition, ""),
    "rule": (_rule, "scheduling.view_modelschedulingconfig"),
    "jobs": (_jobs, "scheduling.view_loadjob"),
    "decisions": (_decisions, "scheduling.view_placementdecision"),
    "events": (_events, "nodes.view_clusterevent"),
}


def context(request: HttpRequest, model: ModelLoadInfo) -> dict[str, Any]:
    """Everything the template needs for the tab that was asked for."""
    allowed = [name for name, (_, needs) in TABS.items() if not needs or _may(request, needs)]
    asked = request.GET.get("tab", allowed[0])
    tab = asked if asked in allowed else allowed[0]
    [row] = rows.rows([model.model_name], request=request, now=timezone.now())
    return {
        "model": model,
        "row": row,
        "title": model.model_name,
        "cells": {name: rows.cell(name, row) for name in rows.LIVE},
        "tab": tab,
        "is_tab": {tab: True},  # a refresh asks for what is shown
        "tabs": allowed,
        "tab_template": f"console/models/tab_{tab}.html",
        **TABS[tab][0](request, model),
    }


def _may(request: HttpRequest, permission: str) -> bool:
    return request.user.has_perm(permission)
