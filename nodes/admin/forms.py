"""What an operator fills in: in a dialog for one node, on a preview page for many."""

from datetime import datetime, timedelta
from typing import Any

from django import forms
from unfold.forms import BaseDialogForm
from unfold.widgets import UnfoldAdminIntegerFieldWidget, UnfoldAdminTextInputWidget

from clustermgr.lib import text
from clustermgr.lib.errors import InvalidInput
from nodes.labelling import check_key, check_value

MINUTES_PER_WEEK = 7 * 24 * 60


class Nothing(forms.Form):
    """Only a confirmation."""


class Reason(forms.Form):
    reason = forms.CharField(
        max_length=255,
        required=False,
        widget=UnfoldAdminTextInputWidget,
        help_text="For the others, and for you in a month.",
    )

    def clean_reason(self) -> str:
        try:
            return text.reason(self.cleaned_data["reason"])
        except InvalidInput as refusal:
            raise forms.ValidationError(str(refusal)) from refusal


class Drain(Reason):
    minutes = forms.IntegerField(
        label="Deadline in minutes",
        min_value=1,
        max_value=MINUTES_PER_WEEK,
        required=False,
        widget=UnfoldAdminIntegerFieldWidget,
        help_text="Empty: wait until the last request is done.",
    )


class Label(forms.Form):
    label = forms.CharField(
        max_length=400,
        widget=UnfoldAdminTextInputWidget({"placeholder": "tier=fast"}),
        help_text="key=value; an operator's label stands over the worker's own.",
    )

    def clean_label(self) -> dict[str, str]:
        try:
            return pair(self.cleaned_data["label"])
        except InvalidInput as refusal:
            raise forms.ValidationError(str(refusal)) from refusal


class ReasonDialog(Reason, BaseDialogForm):
    pass


class DrainDialog(Drain, BaseDialogForm):
    pass


class DeadlineDialog(BaseDialogForm):
    minutes = forms.IntegerField(
        label="Deadline in minutes from now",
        min_value=1,
        max_value=MINUTES_PER_WEEK,
        required=False,
        widget=UnfoldAdminIntegerFieldWidget,
        help_text="Empty: no deadline.",
    )


def pair(line: str) -> dict[str, str]:
    """`key=value` as a label."""
    key, equals, value = line.strip().partition("=")
    if not equals:
        raise InvalidInput("A label is written key=value.")
    return {check_key(key.strip()): check_value(value.strip())}


def deadline(data: dict[str, Any], *, now: datetime) -> datetime | None:
    minutes = data["minutes"]
    return now + timedelta(minutes=minutes) if minutes else None
