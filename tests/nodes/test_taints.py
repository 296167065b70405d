import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodes.states import TaintEffect
from nodes.taints import Taint, Toleration, untolerated

GPU_ONLY = Taint(key="gpu-only", effect=TaintEffect.NO_SCHEDULE)
WORDS = st.sampled_from(["", "a", "b"])
TAINTS = st.lists(st.builds(Taint, key=WORDS, value=WORDS, effect=st.sampled_from(TaintEffect)))
TOLERATIONS = st.lists(
    st.builds(
        Toleration,
        key=st.none() | WORDS,
        value=st.none() | WORDS,
        effect=st.none() | st.sampled_from(TaintEffect),
    )
)


@pytest.mark.parametrize(
    ("toleration", "welcome"),
    [
        (Toleration(key="gpu-only"), True),
        (Toleration(key="gpu-only", value=""), True),
        (Toleration(key="gpu-only", value="other"), False),
        (Toleration(key="gpu-only", effect=TaintEffect.NO_SCHEDULE), True),
        (Toleration(key="gpu-only", effect=TaintEffect.PREFER_NO_SCHEDULE), False),
        (Toleration(key="something-else"), False),
        (Toleration(), True),
    ],
)
def test_a_toleration_covers_what_it_names(toleration: Toleration, welcome: bool) -> None:
    assert (untolerated([GPU_ONLY], tolerations=[toleration]) == []) is welcome


def test_without_tolerations_every_taint_keeps_work_away() -> None:
    assert untolerated([GPU_ONLY], tolerations=[]) == [GPU_ONLY]


@given(TAINTS, TOLERATIONS, TOLERATIONS)
def test_one_more_toleration_never_makes_a_model_less_welcome(
    taints: list[Taint], some: list[Toleration], more: list[Toleration]
) -> None:
    with_more = untolerated(taints, tolerations=[*some, *more])
    assert set(with_more) <= set(untolerated(taints, tolerations=some))
