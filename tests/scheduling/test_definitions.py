import json
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from hypothesis import given
from hypothesis import strategies as st

from clustermgr.lib.errors import InvalidInput
from scheduling.definitions import Definition, check_options, revision, size
from worker.rpc.backend_pb2 import ModelOptions

GIB = 2**30
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
OPTIONS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "ContextSize": st.integers(-5, 5),
        "Threads": st.integers(-(2**31), 2**31 - 1),
        "Embeddings": st.booleans(),
        "CFGScale": FLOATS,
        "LoraScales": st.lists(FLOATS, max_size=3),
        "Tokenizer": st.sampled_from(["", "a", "b\nc"]),
        "Options": st.lists(st.sampled_from(["a:1", "b:2", ""]), max_size=3),
        "GrammarTriggers": st.lists(
            st.fixed_dictionaries({"word": st.sampled_from(["", "x"])}), max_size=2
        ),
    },
)


def wire(options: dict[str, Any]) -> bytes:
    message = ParseDict(check_options(options, model="m"), ModelOptions())
    return message.SerializeToString(deterministic=True)


@given(OPTIONS, st.randoms(use_true_random=False), st.sampled_from([None, 1, 4]))
def test_order_and_formatting_never_change_the_revision(
    options: dict[str, Any], chance: Any, indent: int | None
) -> None:
    items = list(options.items())
    chance.shuffle(items)
    again = json.loads(json.dumps(dict(items), indent=indent))
    first, second = (Definition.of(of(given_)) for given_ in (options, again))
    assert first.revision == second.revision


@given(OPTIONS, OPTIONS)
def test_two_revisions_are_equal_where_the_same_bytes_would_be_sent(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    same = Definition.of(of(one)).revision == Definition.of(of(other)).revision
    assert same == (wire(one) == wire(other))


def of(options: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": "m", "backend": "reference", "options": options, **more}


def test_another_backend_is_another_revision() -> None:
    assert revision("a", {"Model": "m"}) != revision("b", {"Model": "m"})


def test_the_size_is_no_part_of_the_revision() -> None:
    plain, sized = Definition.of(of({})), Definition.of(of({}, size="4 GiB", vram=1))
    assert plain.revision == sized.revision
    assert (sized.size_bytes, sized.vram_bytes) == (4 * GIB, 1)


def test_what_says_nothing_is_left_out_and_the_model_names_itself() -> None:
    options = check_options(
        {"Threads": 0, "Tokenizer": "", "MMap": False, "Options": [], "Seed": None}, model="llama"
    )
    assert options == {"Model": "llama"}
    assert check_options({"Model": "a.gguf"}, model="llama") == {"Model": "a.gguf"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ContextSise": 1}, "did you mean ContextSize?"),
        ({"contextsize": 1}, "did you mean ContextSize?"),
        ({"Zzz": 1}, "There is no option 'Zzz'."),
        ({"ContextSize": "8192"}, "ContextSize must be a whole number, not '8192'."),
        ({"ContextSize": 1.5}, "ContextSize must be a whole number, not a float."),
        ({"ContextSize": True}, "ContextSize must be a whole number, not a bool."),
        ({"ContextSize": 2**31}, "ContextSize must be between -2147483648 and 2147483647."),
        ({"Embeddings": "yes"}, "Embeddings must be true or false, not 'yes'."),
        ({"CFGScale": "much"}, "CFGScale must be a number"),
        ({"CFGScale": 1e300}, "CFGScale is too large a number"),
        ({"CFGScale": float("nan")}, "CFGScale is too large a number, or none."),
        ({"Model": 7}, "Model must be a text, not a int."),
        ({"Model": "a\x00b"}, "Model contains control characters."),
        ({"Model": "\ud800"}, "Model is not valid Unicode."),
        ({"Model": "x" * 70000}, "at most 65536 are allowed"),
        ({"Options": "a:1"}, "Options must be a list."),
        ({"Options": ["a", 1]}, "Options[1] must be a text"),
        ({"Options": ["a"] * 1001}, "at most 1000 are allowed"),
        ({"GrammarTriggers": [{"wrod": "x"}]}, "did you mean word?"),
        ({"GrammarTriggers": ["x"]}, "GrammarTriggers[0] must be an object."),
        ([], "options must be an object."),
    ],
)
def test_an_option_of_the_wrong_kind_is_refused_with_its_name(options: Any, words: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        check_options(options, model="m")
    assert words in str(refusal.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": ""}, "The model needs a name."),
        ({"name": "a#1"}, "is no name for a model"),
        ({"name": "../etc"}, "it reads like a path"),
        ({"name": "/abs"}, "it reads like a path"),
        ({"name": "a/load"}, "its address is taken"),
        ({"name": "x" * 256}, "at most 255"),
        ({"name": " a"}, "no space at its ends"),
        ({"backend": ""}, "The model needs a backend."),
        ({"backend": "a/../b"}, "is no name of a backend"),
        ({"backend": 3}, "The backend must be a text"),
        ({"vram": -1}, "vram must be between 0"),
        ({"vram": "-1GB"}, "vram: '-1GB' is no size"),
        ({"vram": "lots"}, "is no size"),
        ({"vram": 1.5}, "vram must be a number of bytes"),
        ({"size": 2**64}, "size must be between 0"),
        ({"size": 1, "size_bytes": 2}, "says its size twice"),
        ({"colour": "red"}, "A model has no 'colour'."),
        ({"backand": "x"}, "did you mean backend?"),
    ],
)
def test_a_definition_that_cannot_be_meant_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        Definition.of(of({}, **changes))
    assert words in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("4.1 GiB", 4402341478),
        ("4GB", 4_000_000_000),
        ("512 mib", 512 * 2**20),
        ("17", 17),
        (17, 17),
        ("", None),
        (None, None),
        ("0", 0),
    ],
)
def test_a_size_may_be_told_in_words(text: object, count: int | None) -> None:
    assert size(text, field="size") == count


def test_a_rename_is_refused_with_what_to_do_instead() -> None:
    with pytest.raises(InvalidInput, match="cannot be renamed"):
        Definition.of(of({})).changed({"name": "other"})


def test_what_a_change_leaves_out_stays() -> None:
    before = Definition.of(of({"Threads": 4}, size="1 GiB", concurrency_group="big"))
    after = before.changed({"vram": "2GiB"})
    assert (after.options, after.size_bytes) == (before.options, GIB)
    assert (after.vram_bytes, after.concurrency_group) == (2 * GIB, "big")
