"""What hypothesis may make up about labels and selectors."""

from hypothesis import strategies as st

from nodes.selectors import Operator, Requirement, Selector

# Few keys and values, so that they meet; odd ones, so that quoting is needed
KEYS = st.sampled_from(["a", "b", "in", "notin", "gpu.vram", "x/y-z_1"])
ODD = st.text(st.characters(exclude_categories=["C", "Z"]) | st.just(" "), max_size=12)
NUMBERS = st.from_regex(r"-?[0-9]{1,4}(\.[0-9]{1,3})?", fullmatch=True)
VALUES = st.sampled_from(["", "fast", "80GB+", "a,b", '"', "\\", "(x)", "3", "3.0"]) | NUMBERS | ODD
LABELS = st.dictionaries(KEYS, VALUES, max_size=5)

_MEMBERSHIP = st.builds(
    Requirement,
    key=KEYS,
    operator=st.sampled_from([Operator.IN, Operator.NOT_IN]),
    values=st.sets(VALUES, min_size=1, max_size=4).map(sorted).map(tuple),
)
_PRESENCE = st.builds(
    Requirement, key=KEYS, operator=st.sampled_from([Operator.EXISTS, Operator.MISSING])
)
_COMPARISON = st.builds(
    Requirement,
    key=KEYS,
    operator=st.sampled_from([Operator.ABOVE, Operator.BELOW]),
    values=NUMBERS.map(lambda number: (number,)),
)
SELECTORS = st.sets(_MEMBERSHIP | _PRESENCE | _COMPARISON, max_size=4).map(
    lambda found: Selector(tuple(sorted(found)))
)
