import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from backendops import galleries
from backendops.galleries import MOST_ENTRIES, UnreadableGallery

LOCALAI = b"""
- &llama
  name: llama-cpp
  alias: llama-cpp
  license: mit
  icon: https://example.org/llama.png
  description: |
    LLM inference
    in C++
  urls: [https://example.org/llama]
  tags: [text-to-text, gpu]
  capabilities:
    default: cpu-llama-cpp
    nvidia: cuda12-llama-cpp
- !!merge <<: *llama
  name: cuda12-llama-cpp
  capabilities: {}
  version: 1.2
  uri: quay.io/example/cuda12:latest
  mirrors: [localai/example:cuda12]
  sha256: "AA00000000000000000000000000000000000000000000000000000000000000"
"""


def test_an_index_in_localais_shape_is_read() -> None:
    index = galleries.parse(LOCALAI)
    meta, concrete = index.entries
    assert index.problems == ()
    assert meta.capabilities == {"default": "cpu-llama-cpp", "nvidia": "cuda12-llama-cpp"}
    assert (meta.tags, meta.license, meta.urls[0][:8]) == (
        ("text-to-text", "gpu"),
        "mit",
        "https://",
    )
    assert (concrete.name, concrete.version) == ("cuda12-llama-cpp", "1.2")
    assert concrete.digest == "sha256:aa" + "0" * 62
    assert concrete.description == "LLM inference\nin C++"


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        ({"uri": "x"}, "it has no name"),
        ("just text", "it is not an object"),
        ({"name": "a" * 300}, "its name is 300 bytes long"),
        ({"name": "x", "version": ["1"]}, "its version is not text"),
        ({"name": "x\n\x00"}, "its name contains control characters"),
        ({"name": "x", "tags": {"a": 1}}, "its tags is not a list"),
        ({"name": "x", "capabilities": ["nvidia"]}, "its capabilities are not an object"),
        ({"name": "good"}, "good is there twice"),
    ],
)
def test_a_bad_entry_is_left_out_and_told(bad: object, told: str) -> None:
    raw = yaml.safe_dump([{"name": "good"}, bad, {"name": "also-good"}]).encode()
    index = galleries.parse(raw)
    assert [entry.name for entry in index.entries] == ["good", "also-good"]
    assert told in index.problems[0]
    assert index.problems[0].startswith("Entry 2: ")


@pytest.mark.parametrize(
    "raw",
    [b"", b"name: x", b"- [", b"\xff\xfe\x00x", b"- 2024-13-45", b"[" * 100_000],
)
def test_what_holds_no_list_is_refused_in_words(raw: bytes) -> None:
    with pytest.raises(UnreadableGallery):
        galleries.parse(raw)


def test_too_many_entries_are_cut_and_told() -> None:
    raw = b"".join(b"- {name: b%d}\n" % number for number in range(MOST_ENTRIES + 3))
    index = galleries.parse(raw)
    assert len(index.entries) == MOST_ENTRIES
    assert "Only the first 5000 of 5003" in index.problems[0]


def test_many_problems_are_summed_up() -> None:
    index = galleries.parse(b"- 1\n" * 100)
    assert len(index.problems) == galleries.MOST_PROBLEMS + 1
    assert index.problems[-1] == "And 80 more."


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=20),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(["name", "uri", "tags", "capabilities", "x"]), inner, max_size=4
            )
        ),
        max_leaves=20,
    )
)
def test_whatever_a_gallery_says_is_read_or_refused(document: object) -> None:
    raw = yaml.safe_dump(document, allow_unicode=True).encode(errors="replace")
    try:
        index = galleries.parse(raw)
    except UnreadableGallery:
        return
    names = [entry.name for entry in index.entries]
    assert len(names) == len(set(names))
    assert all(names)
