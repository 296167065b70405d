"""The page that gives an order: what, where, a preview, and only then a write.

Every step carries all that was chosen; nothing is stored before the last one, and everything
after it is on the operation's page. Closing the window loses nothing that was ordered.
"""

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.urls import reverse
from django.utils import timezone
from django.views.generic import TemplateView
from unfold.views import UnfoldModelAdminViewMixin

from backendops.orders import Order, Target
from backendops.presenting import picking
from backendops.services import catalog, requesting
from backendops.states import Verb
from clustermgr.lib.errors import DomainError, InvalidInput
from nodes.admin.live import ids_in

TEXTS = ("backend", "uri", "name", "alias", "q", "reason")
LONGEST = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is filled in, whichever step it came from."""

    verb: Verb
    texts: dict[str, str]
    galleries: tuple[str, ...]
    despite_mismatch: bool
    chosen: frozenset[UUID] = field(default_factory=frozenset)
    page: int = 1

    @classmethod
    def of(cls, given: QueryDict) -> "Wish":
        verb = given.get("verb", "")
        shown = frozenset(ids_in(given.get("shown", "")))
        kept = frozenset(ids_in(given.get("nodes", ""))) - shown
        page = given.get("page", "1")
        return cls(
            verb=Verb(verb) if verb in Verb.values else Verb.INSTALL,
            texts={name: given.get(name, "").replace("\x00", "")[:LONGEST] for name in TEXTS},
            galleries=tuple(given.getlist("gallery")),
            despite_mismatch="despite" in given,
            chosen=kept | frozenset(ids_in(",".join(given.getlist("node")))),
            page=int(page) if page.isdecimal() and len(page) < 6 else 1,
        )

    def order(self) -> Order:
        offered = dict(picking.known_galleries())
        order = Order.of(
            self.verb,
            backend=self.texts["backend"],
            uri=self.texts["uri"],
            name=self.texts["name"],
            alias=self.texts["alias"],
            galleries=[
                {"name": name, "url": offered[name]} for name in self.galleries if name in offered
            ],
        )
        return catalog.resolve(order)

    def target(self) -> Target:
        if not self.chosen:
            raise InvalidInput("Choose at least one node.")
        return Target(
            nodes=tuple(sorted(self.chosen, key=str)), despite_mismatch=self.despite_mismatch
        )


class InstallView(UnfoldModelAdminViewMixin, TemplateView):
    title = "Give an order"
    permission_required = ("backendops.request_operation",)
    raise_exception = True
    template_name = "console/operations/install.html"

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        return self._pick(Wish.of(request.GET), choice=request.GET.get("select", ""))

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        wish, step = Wish.of(request.POST), request.POST.get("do", "")
        try:
            if step == "preview":
                return self._preview(wish)
            if step == "place":
                return self._place(wish)
        except DomainError as refusal:
            return self._pick(wish, refusal=str(refusal))
        turned = request.POST.get("turn", "")
        return self._pick(wish, choice=step, turn=int(turned) if turned.isdecimal() else 0)

    def _pick(
        self, wish: Wish, *, choice: str = "", refusal: str = "", turn: int = 0
    ) -> HttpResponse:
        order = None
        try:
            nodes = picking.matching(wish.texts["q"])
            if wish.texts["backend"] or wish.texts["uri"]:
                order = wish.order()
        except InvalidInput as error:
            refusal, nodes = refusal or str(error), picking.matching("")
        chosen = frozenset() if choice == "clear" else wish.chosen
        if choice in picking.CHOICES:
            chosen |= picking.whole_set(nodes, order, choice=choice)
        page = picking.page(nodes, order, chosen=chosen, number=turn or wish.page)
        return self.render_to_response(
            self.get_context_data(
                **self._fields(wish, chosen),
                page=page,
                refusal=refusal,
                choices=picking.CHOICES if order else {"healthy": picking.CHOICES["healthy"]},
                waiting=picking.waiting(),
                backends=picking.known_backends(),
                offered_galleries=picking.known_galleries(),
            )
        )

    def _preview(self, wish: Wish) -> HttpResponse:
        order, target = wish.order(), wish.target()
        chosen, sorting = requesting.preview(order, target)
        if not sorting.fresh and not sorting.joined:
            raise requesting.BlockedByOperation(" ".join(one.why for one in sorting.blocked[:5]))
        return self.render_to_response(
            self.get_context_data(
                **self._fields(wish, wish.chosen),
                preview=sorting,
                order=order,
                skipped=[*chosen.skipped, *sorting.blocked],
                count=len(sorting.fresh) + len(sorting.joined),
            )
        )

    def _place(self, wish: Wish) -> HttpResponse:
        by, now = self.request.user.get_username(), timezone.now()
        placed = requesting.place(
            wish.order(), wish.target(), by=by, now=now, reason=wish.texts["reason"]
        )
        if not placed.created:
            messages.info(self.request, "The same work was ordered before; this is it.")
        page = reverse("admin:backendops_operation_change", args=[placed.operation.pk])
        return HttpResponseRedirect(page)

    def _fields(self, wish: Wish, chosen: frozenset[UUID]) -> dict[str, Any]:
        return {
            "wish": wish,
            "verbs": Verb.values,
            "chosen": ",".join(sorted(map(str, chosen))),
            "chosen_count": len(chosen),
        }
