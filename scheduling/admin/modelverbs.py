"""The buttons at the top of a model's page, each asked back before it is done."""

from typing import Any

from django import forms
from django.http import HttpRequest
from django.utils import timezone
from unfold.enums import ActionVariant
from unfold.forms import BaseDialogForm
from unfold.widgets import UnfoldAdminTextInputWidget, UnfoldBooleanWidget

from clustermgr.lib.admin import Dialog, ReadOnlyAdmin, ops_action
from scheduling.models import ModelLoadInfo
from scheduling.services import acting, defining, stopping

Filled = dict[str, Any]


class WhereDialog(BaseDialogForm):
    node = forms.CharField(
        max_length=255,
        required=False,
        widget=UnfoldAdminTextInputWidget,
        help_text="A node's name; empty: the scheduler chooses.",
    )


class ForceDialog(BaseDialogForm):
    force = forms.BooleanField(
        required=False,
        widget=UnfoldBooleanWidget,
        help_text="Even while requests are running: they are cut off.",
    )


class DeleteDialog(BaseDialogForm):
    force = forms.BooleanField(
        required=False,
        widget=UnfoldBooleanWidget,
        help_text="Also its rule, and unload its replicas.",
    )


class ModelVerbs(ReadOnlyAdmin):
    verbs = {
        "operate": "scheduling.operate_model",
        "define": "scheduling.add_modelloadinfo",
        "edit": "scheduling.change_modelloadinfo",
        "rule": "scheduling.change_modelschedulingconfig",
        "forget": "scheduling.delete_modelloadinfo",
    }
    actions_detail = ["load", "unload", "forget"]
    actions_detail_hide_default = True

    @ops_action(
        "Load now",
        verb="operate",
        icon="play_arrow",
        variant=ActionVariant.PRIMARY,
        dialog=Dialog(
            title="Load one more replica?",
            explain="It is placed now, as the rule allows, and loaded in the background.",
            submit="Load",
            form=WhereDialog,
        ),
    )
    def load(self, request: HttpRequest, model: ModelLoadInfo, filled: Filled) -> str:
        by, now = request.user.get_username(), timezone.now()
        job = acting.load(model.model_name, node=filled["node"], by=by, now=now)
        return f"{model.model_name} is being loaded on {job.node.name}."

    @ops_action(
        "Unload all",
        verb="operate",
        icon="stop",
        dialog=Dialog(
            title="Unload every replica?",
            explain="Loads under way are given up. A rule with a minimum brings them back.",
            submit="Unload",
            form=ForceDialog,
        ),
    )
    def unload(self, request: HttpRequest, model: ModelLoadInfo, filled: Filled) -> str:
        by, now = request.user.get_username(), timezone.now()
        count = stopping.stop_all(model.model_name, by=by, now=now, force=filled["force"])
        return f"{model.model_name}: {_unloading(count)}."

    @ops_action(
        "Delete",
        verb="forget",
        icon="delete",
        variant=ActionVariant.DANGER,
        leads_to="admin:scheduling_modelloadinfo_changelist",
        dialog=Dialog(
            title="Delete this model?",
            explain="Its definition is forgotten; it can be defined again.",
            submit="Delete",
            form=DeleteDialog,
        ),
    )
    def forget(self, request: HttpRequest, model: ModelLoadInfo, filled: Filled) -> str:
        by, now = request.user.get_username(), timezone.now()
        count = defining.delete(model.model_name, by=by, now=now, force=filled["force"])
        return f"{model.model_name} is deleted; {_unloading(count)}."


def _unloading(count: int) -> str:
    replicas = "1 replica is" if count == 1 else f"{count} replicas are"
    return f"{replicas} being unloaded"
