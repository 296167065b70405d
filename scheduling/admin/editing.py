"""Models defined, edited and imported by hand. Nothing is written before everything is read."""

from collections.abc import Mapping
from typing import Any

from django.contrib import messages
from django.contrib.admin.utils import quote
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone

from clustermgr.lib.errors import DomainError
from scheduling.definitions import Definition
from scheduling.importing import read_yaml
from scheduling.models import ModelLoadInfo
from scheduling.presenting import options
from scheduling.services import defining
from scheduling.states import Cutover

TEXTS = ("backend", "size", "vram", "concurrency_group")


def page_of(name: str, tab: str = "") -> str:
    page = reverse("admin:scheduling_modelloadinfo_change", args=[quote(name)])
    return f"{page}?tab={tab}" if tab else page


def page_of_list() -> str:
    return reverse("admin:scheduling_modelloadinfo_changelist")


def new(admin: Any, request: HttpRequest) -> HttpResponse:
    """A form for a model that nobody knows yet."""
    _must(admin.has_define_permission(request))
    if request.method == "POST":
        name = request.POST.get("name", "").strip()
        try:
            model = defining.create(
                Definition.of({"name": name, **_filled(request)}),
                by=request.user.get_username(),
                now=timezone.now(),
            )
        except DomainError as refusal:
            return _new(admin, request, refusal=str(refusal))
        admin.message_user(request, f"{model.model_name} is defined.", messages.SUCCESS)
        return HttpResponseRedirect(page_of(model.model_name, "rule"))
    return _new(admin, request)


def save(admin: Any, request: HttpRequest) -> HttpResponse:
    """An edit of a model that is there; says how many replicas it takes out of service."""
    _must(admin.has_edit_permission(request))
    if request.method != "POST":  # a reload of what a refusal came back on
        return HttpResponseRedirect(page_of_list())
    name, version = request.POST.get("model", ""), request.POST.get("version", "")
    try:
        edited = defining.edit(
            name,
            Definition.of({"name": name, **_filled(request)}),
            by=request.user.get_username(),
            now=timezone.now(),
            expected_version=int(version) if version.isdecimal() and len(version) < 19 else None,
            cutover=Cutover.ROLLING if request.POST.get("rolling") else None,
        )
    except DomainError as refusal:
        return _again(admin, request, name=name, refusal=str(refusal))
    admin.message_user(request, _said(edited), messages.SUCCESS)
    return HttpResponseRedirect(page_of(name, "definition"))


def import_many(admin: Any, request: HttpRequest) -> HttpResponse:
    """A list of models, as YAML or JSON; all of them or none."""
    _must(admin.has_define_permission(request) and admin.has_edit_permission(request))
    text, refusal = request.POST.get("text", ""), ""
    if request.method == "POST":
        try:
            done = defining.import_all(
                read_yaml(text), by=request.user.get_username(), now=timezone.now()
            )
        except DomainError as error:
            refusal = str(error)
        else:
            said = f"Defined {len(done.created)}, edited {len(done.edited)}, left alone "
            admin.message_user(request, f"{said}{len(done.unchanged)}.", messages.SUCCESS)
            return HttpResponseRedirect(page_of_list())
    context = {"text": text, "refusal": refusal}
    return _page(admin, request, "console/models/import.html", "Import models", **context)


def _new(admin: Any, request: HttpRequest, *, refusal: str = "") -> HttpResponse:
    given = request.POST if request.method == "POST" else request.GET  # a link may bring a name
    context = {**_kept(given), "refusal": refusal, "back": page_of_list()}
    return _page(admin, request, "console/models/new.html", "Define a model", **context)


def _again(admin: Any, request: HttpRequest, *, name: str, refusal: str) -> HttpResponse:
    """An edit as it was filled in, with what is wrong about it."""
    carried = {key: request.POST.get(key, "") for key in ("model", "version")}
    known = ModelLoadInfo.objects.filter(pk=name.replace("\x00", "")).exists()
    back = page_of(name, "definition") if known else page_of_list()
    context = {**_kept(request.POST), "refusal": refusal, "carried": carried, "back": back}
    return _page(admin, request, "console/models/new.html", f"Edit {name}", **context)


def _kept(given: Mapping[str, str]) -> dict[str, Any]:
    """What was filled in, for the form that comes back with a refusal."""
    shown, rest = options.typed(given)
    kept = {name: given.get(name, "") for name in ("name", "rolling", *TEXTS)}
    return {"kept": kept, "shown_options": shown, "more_options": rest, "may_edit": True}


def _filled(request: HttpRequest) -> dict[str, Any]:
    texts = {name: request.POST.get(name, "").strip() for name in TEXTS}
    return {**texts, "options": options.read(request.POST)}


def _said(edited: defining.Edited) -> str:
    if not edited.changed:
        return "Nothing has changed."
    name, count = edited.model.model_name, edited.to_replace
    if not count:
        return f"{name} is saved; no replica has to be replaced."
    how = ", one after the other while they serve" if edited.model.rolling_since else ""
    return f"{name} is saved; {count} replica{'' if count == 1 else 's'} to replace{how}."


def _page(
    admin: Any, request: HttpRequest, template: str, title: str, **context: Any
) -> HttpResponse:
    shared = {
        **admin.admin_site.each_context(request),
        "title": title,
        "opts": admin.model._meta,
    }
    return TemplateResponse(request, template, {**shared, **context})


def _must(allowed: bool) -> None:
    if not allowed:
        raise PermissionDenied
