import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustermgr.lib.errors import InvalidInput
from nodes.budgets import LARGEST, cap, resolve
from tests.factories import GIB

TOTALS = st.integers(min_value=0, max_value=LARGEST)
BUDGETS = st.one_of(
    st.integers(min_value=0, max_value=100).map(lambda share: f"{share}%"),
    st.from_regex(r"[01]\.[0-9]{1,6}%", fullmatch=True),
    st.integers(min_value=0, max_value=10**6).map(lambda part: f"{part / 10**6:f}"),
    st.integers(min_value=0, max_value=LARGEST).map(str),
    st.builds(
        "{}{}".format,
        st.integers(min_value=0, max_value=99_999),
        st.sampled_from(["B", "KB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "TiB"]),
    ),
)


@pytest.mark.parametrize(
    ("text", "ceiling"),
    [
        ("", 0),
        ("  ", 0),
        ("0", 0),
        ("0%", 0),
        ("0GB", 0),
        ("80%", 80 * GIB),
        ("12.5%", int(12.5 * GIB)),
        ("0.8", 80 * GIB),
        ("1", 100 * GIB),
        ("100%", 100 * GIB),
        ("12GB", 12 * 10**9),
        ("12 gb", 12 * 10**9),
        ("12GiB", 12 * GIB),
        ("1.5KiB", 1536),
        ("512B", 512),
        ("2", 2),
        ("4096", 4096),
        ("1TB", 100 * GIB),
        ("0.4B", 1),
    ],
)
def test_a_budget_resolves_against_the_raw_total(text: str, ceiling: int) -> None:
    assert resolve(text, 100 * GIB) == ceiling


@pytest.mark.parametrize(
    "text",
    [
        "101%",
        "-1",
        "-5%",
        "1.5",
        "many",
        "12XB",
        "12Gi",
        "1e3",
        "GB",
        "%",
        "1,5GB",
        "٣GB",
        "nan",
        "inf",
        "1" * 33,
        "99999999TB",
    ],
)
def test_a_budget_that_means_nothing_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"\.$"):
        resolve(text, 100 * GIB)


def test_a_percentage_is_applied_once_however_often_the_node_reports() -> None:
    ceiling = resolve("50%", 16 * GIB)

    available = cap(16 * GIB, ceiling=ceiling)
    again = cap(available, ceiling=resolve("50%", 16 * GIB))

    assert available == again == 8 * GIB


def test_a_share_of_an_unknown_total_is_no_ceiling_yet_but_bytes_are() -> None:
    assert resolve("80%", 0) == 0
    assert resolve("12GB", 0) == 12 * 10**9


@given(BUDGETS, TOTALS)
def test_a_ceiling_is_never_above_the_total(text: str, total: int) -> None:
    ceiling = resolve(text, total)
    assert 0 <= ceiling <= (total or LARGEST)


@given(BUDGETS, TOTALS, TOTALS)
def test_more_memory_never_means_a_lower_ceiling(text: str, one: int, other: int) -> None:
    less, more = sorted((max(one, 1), max(other, 1)))
    assert resolve(text, less) <= resolve(text, more)


@given(BUDGETS, st.integers(min_value=1, max_value=LARGEST))
def test_a_budget_above_zero_never_turns_into_no_budget(text: str, total: int) -> None:
    anything = any(digit in "123456789" for digit in text)
    assert (resolve(text, total) > 0) is anything


@given(st.integers(min_value=0, max_value=LARGEST), BUDGETS, TOTALS)
def test_capping_twice_is_capping_once(available: int, text: str, total: int) -> None:
    ceiling = resolve(text, total)
    once = cap(available, ceiling=ceiling)
    assert cap(once, ceiling=ceiling) == once <= available
