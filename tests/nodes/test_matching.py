import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodes.models import BackendNode, NodeLabel
from nodes.selectors import Selector
from nodes.services import labels
from nodes.states import LabelSource
from tests.factories import make_node
from tests.nodes.strategies import LABELS, SELECTORS

OWNED = st.fixed_dictionaries({source: LABELS for source in LabelSource})


def own(node: BackendNode, owned: dict[LabelSource, dict[str, str]]) -> None:
    NodeLabel.objects.filter(node=node).delete()
    NodeLabel.objects.bulk_create(
        NodeLabel(node=node, key=key, value=value, source=source)
        for source, pairs in owned.items()
        for key, value in pairs.items()
    )


@pytest.mark.django_db
def test_the_database_and_the_pure_selector_agree_on_every_label_set() -> None:
    first, second = make_node("first"), make_node("second")

    @settings(max_examples=150, deadline=None)
    @given(OWNED, OWNED, SELECTORS)
    def agree(
        here: dict[LabelSource, dict[str, str]],
        there: dict[LabelSource, dict[str, str]],
        selector: Selector,
    ) -> None:
        own(first, here)
        own(second, there)
        effective = labels.effective([first.pk, second.pk])
        expected = {pk for pk, found in effective.items() if selector.matches(found)}
        assert {node.pk for node in BackendNode.objects.matching(selector)} == expected

    agree()


@pytest.mark.django_db
def test_a_stronger_owner_hides_a_weaker_ones_value_from_selectors() -> None:
    node = make_node()
    own(node, {LabelSource.WORKER: {"tier": "fast"}, LabelSource.ADMIN: {"tier": "slow"}})

    assert not BackendNode.objects.matching(Selector.parse("tier=fast")).exists()
    assert BackendNode.objects.matching(Selector.parse("tier=slow")).get() == node


@pytest.mark.django_db
def test_a_text_that_is_no_number_is_no_match_and_no_error() -> None:
    own(make_node("many"), {LabelSource.ADMIN: {"disk": "many"}})
    own(make_node("few"), {LabelSource.ADMIN: {"disk": "3"}})

    found = BackendNode.objects.matching(Selector.parse("disk>1"))

    assert [node.name for node in found] == ["few"]


@pytest.mark.django_db
def test_matching_twice_means_both() -> None:
    own(make_node("both"), {LabelSource.ADMIN: {"a": "1", "b": "2"}})
    own(make_node("one"), {LabelSource.ADMIN: {"a": "1", "b": "3"}})

    found = BackendNode.objects.matching(Selector.parse("a=1")).matching(Selector.parse("b=2"))

    assert [node.name for node in found] == ["both"]
