from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from backendops.upgrading import Offer, Place, spreads, upgrades


def place(node: str, backend: str = "llama-cpp", version: str = "1", digest: str = "d1") -> Place:
    number = UUID(int=int.from_bytes(node.encode()))
    return Place(node_id=number, node_name=node, backend=backend, version=version, digest=digest)


def offered(version: str = "", digest: str = "") -> dict[str, Offer]:
    return {"llama-cpp": Offer(gallery="main", version=version, digest=digest)}


def names(rows: list[Place], offer: dict[str, Offer]) -> list[str]:
    found = upgrades(rows, offer).get("llama-cpp")
    return [where.node_name for where in found.places] if found else []


def test_row_60_one_node_of_three_with_another_digest_is_drift_and_named() -> None:
    spread = spreads([place("a"), place("b"), place("c", digest="d2")])["llama-cpp"]
    assert (spread.version, spread.digest) == ("1", "d1")
    assert [where.node_name for where in spread.drift] == ["c"]


def test_another_version_in_the_gallery_is_an_upgrade_for_whoever_does_not_have_it() -> None:
    rows = [place("a"), place("b"), place("c", version="2", digest="d2")]
    assert names(rows, offered(version="2")) == ["a", "b"]
    assert upgrades(rows, offered(version="2"))["llama-cpp"].spread.version == "1"


def test_a_node_that_knows_no_version_counts_as_older() -> None:
    assert names([place("a", version="")], offered(version="1")) == ["a"]


def test_without_versions_the_digest_decides_and_an_unknown_one_counts_as_older() -> None:
    rows = [place("a", version="", digest="d1"), place("b", version="", digest="")]
    assert names(rows, offered(digest="d1")) == ["b"]
    assert names(rows, offered(digest="d2")) == ["a", "b"]


def test_the_same_version_with_other_files_is_an_upgrade() -> None:
    assert names([place("a")], offered(version="1", digest="d2")) == ["a"]
    assert names([place("a", digest="")], offered(version="1", digest="d2")) == []


def test_drift_alone_is_an_upgrade_for_those_who_drifted() -> None:
    rows = [place("a"), place("b"), place("c", digest="d2")]
    assert names(rows, offered(version="1")) == ["c"]


def test_all_alike_and_as_the_gallery_has_it_is_none() -> None:
    assert names([place("a"), place("b")], offered(version="1", digest="d1")) == []
    assert names([place("a"), place("b")], offered()) == []


def test_system_backends_aliases_and_stable_twins_of_development_ones_are_left_alone() -> None:
    image = Place(node_id=UUID(int=1), node_name="a", backend="llama-cpp", is_system=True)
    alias = place("b", backend="llama")
    stable, twin = place("c"), place("c", backend="llama-cpp-development")
    assert upgrades([image, alias, stable, twin], offered(version="2")) == {}
    assert names([stable, twin, place("d")], offered(version="2")) == ["d"]


def test_a_meta_backend_has_other_files_on_other_hardware_without_drifting() -> None:
    rows = [
        Place(
            node_id=UUID(int=n),
            node_name=str(n),
            backend="llama-cpp",
            version="1",
            digest=f"d{n}",
            is_meta=True,
        )
        for n in range(3)
    ]
    assert spreads(rows)["llama-cpp"].drift == []
    assert upgrades(rows, offered(version="1", digest="d9")) == {}


WORDS = st.sampled_from(["", "1", "2"])
PLACES = st.builds(
    Place,
    node_id=st.integers(0, 5).map(lambda number: UUID(int=number)),
    node_name=st.sampled_from("abc"),
    backend=st.sampled_from(["llama-cpp", "llama-cpp-development", "other"]),
    version=WORDS,
    digest=WORDS,
    is_system=st.booleans(),
    is_meta=st.booleans(),
)


@given(st.lists(PLACES, max_size=12), WORDS, WORDS)
def test_every_upgrade_names_somebody_and_nobody_who_has_exactly_what_is_offered(
    rows: list[Place], version: str, digest: str
) -> None:
    for found in upgrades(rows, offered(version, digest)).values():
        assert found.places
        assert not any(where.is_system for where in found.places)
        if version and digest:
            assert all(
                (where.version, where.digest) != (version, digest)
                for where in found.places
                if not where.is_meta
            )
