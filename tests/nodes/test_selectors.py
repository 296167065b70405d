import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustermgr.lib.errors import InvalidInput
from nodes.selectors import MAX_TERMS, Selector
from tests.nodes.strategies import LABELS, SELECTORS


@pytest.mark.parametrize(
    ("text", "labels", "expected"),
    [
        ("", {}, True),
        ("tier=fast", {"tier": "fast"}, True),
        ("tier==fast", {"tier": "slow"}, False),
        ("tier=fast", {}, False),
        ("tier!=fast", {"tier": "slow"}, True),
        ("tier!=fast", {}, True),
        ("zone in (a, b)", {"zone": "b"}, True),
        ("zone in (a, b)", {}, False),
        ("zone notin (a, b)", {"zone": "b"}, False),
        ("zone notin (a, b)", {}, True),
        ("gpu", {"gpu": ""}, True),
        ("gpu", {}, False),
        ("!spot", {}, True),
        ("!spot", {"spot": "no"}, False),
        ("disk>500", {"disk": "500.5"}, True),
        ("disk>500", {"disk": "500"}, False),
        ("disk<9", {"disk": "10"}, False),
        ("disk<9", {"disk": "-1"}, True),
        ("disk>1", {"disk": "1e9"}, False),
        ("disk>1", {"disk": "plenty"}, False),
        ("disk>1", {}, False),
        ('owner="Lab 3, left"', {"owner": "Lab 3, left"}, True),
        ("tier=fast,!spot", {"tier": "fast", "spot": "1"}, False),
        (" tier = fast ,zone in(a) ", {"tier": "fast", "zone": "a"}, True),
    ],
)
def test_a_selector_matches_what_it_says(text: str, labels: dict[str, str], expected: bool) -> None:
    assert Selector.parse(text).matches(labels) is expected


@pytest.mark.parametrize(
    "text",
    [
        ",",
        "a=b,",
        "a=b,,c=d",
        "a=",
        "=b",
        "a in b",
        "a in ()",
        "a in (b",
        "a b",
        "a=b c",
        "a>many",
        'a<"1,000"',
        'a="open',
        'a="bell\a"',
        "!",
        "!a=b",
        "ünit=1",
        "{}",
        '{"a": "b"}',
        f"{'k' * 129}=v",
        f"k={'v' * 256}",
        "a in (" + ",".join(map(str, range(MAX_TERMS + 1))) + ")",
        ",".join(f"k{number}" for number in range(MAX_TERMS + 1)),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"\.$"):
        Selector.parse(text)


@given(st.text(max_size=40))
def test_any_text_is_either_understood_or_refused(text: str) -> None:
    try:
        selector = Selector.parse(text)
    except InvalidInput:
        return
    assert selector.requirements or not text.strip()


@given(SELECTORS)
def test_the_canonical_text_reads_back_as_the_same_selector(selector: Selector) -> None:
    assert Selector.parse(str(selector)) == selector


@given(SELECTORS, LABELS)
def test_order_and_repetition_mean_nothing(selector: Selector, labels: dict[str, str]) -> None:
    backwards = ",".join(map(str, (*reversed(selector.requirements), *selector.requirements)))
    assert Selector.parse(backwards) == selector
    assert Selector.parse(backwards).matches(labels) == selector.matches(labels)


@given(LABELS, LABELS)
def test_the_wire_form_means_exactly_these_pairs(
    wanted: dict[str, str], labels: dict[str, str]
) -> None:
    assert Selector.from_wire(wanted).matches(labels) is (wanted.items() <= labels.items())


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        "",
        '{"a": "b"}',
        {"a": 1},
        {"a": None},
        {"": "b"},
        {"a b": "c"},
        {1: "a"},
        {"a": "line\nbreak"},
        {f"k{number}": "" for number in range(MAX_TERMS + 1)},
    ],
)
def test_a_broken_wire_selector_never_means_every_node(document: object) -> None:
    with pytest.raises(InvalidInput):
        Selector.from_wire(document)


def test_only_an_explicitly_empty_selector_means_every_node() -> None:
    assert Selector.parse("") == Selector.from_wire({}) == Selector()
    assert Selector().matches({})
