"""Lists of models and of rules: each row knows where its model stands."""

from typing import Any

from django.http import HttpRequest
from django.utils import timezone

from clustermgr.lib.admin import ConsoleChangeList
from scheduling.presenting import rows


class StandingChangeList(ConsoleChangeList):
    """Reads what its rows need for all of them at once, and hangs it on them as `row`."""

    result_list: Any
    names: list[str]

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        self.result_list = list(self.result_list)
        self.names = [one.model_name for one in self.result_list]
        found = rows.rows(self.names, request=request, now=timezone.now())
        for one, row in zip(self.result_list, found, strict=True):
            one.row = row
