"""What an operator fills in before an order is changed."""

from django import forms
from unfold.forms import BaseDialogForm
from unfold.widgets import UnfoldAdminTextInputWidget

from clustermgr.lib import text
from clustermgr.lib.errors import InvalidInput


class ReasonDialog(BaseDialogForm):
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


class MustSayWhy(ReasonDialog):
    reason = forms.CharField(
        max_length=255,
        widget=UnfoldAdminTextInputWidget,
        help_text="It stays in the record: whoever finds it missing will ask.",
    )
