"""Trees that nobody of ours wrote: a typed error or a value, in bounded time and memory."""

from __future__ import annotations

import contextlib
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.msgpack import Ext, encode

from perdure.errors import CorruptValue, JournalDamaged, UnknownType, ValueTooLarge
from perdure.journal import objects, trees
from perdure.journal.trees.nodes import LEVELS_MAX, parse_node
from perdure.store import open_store
from perdure.store.base import Statement, Store
from perdure.values import codec
from perdure.values.codec.tags import STRUCTURES, ExtensionTag
from tests.unit.tree_values import Keep, keep, noise
from tests.unit.units import behind

LEAF, GROUP, WHOLE = 1, 2, 3
GOOD = {"list": [noise(n, 900) for n in range(60)], "text": noise(1, 20_000).hex(), "n": (1, 2)}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    opened_store = open_store(f"sqlite:///{tmp_path_factory.mktemp('forged')}/perdure.db")
    yield opened_store
    opened_store.close()


def forge(store: Store, content: bytes) -> bytes:
    """An object with the id that it should have: whoever writes to the store can make one."""
    identity = objects.identify(store, content)
    store.submit(Keep(Statement("put_object", (identity, len(content), objects.compress(content)))))
    return identity


def tree(*flat: Any) -> bytes:
    return b"\x02" + encode(list(flat))


def read_hostile(store: Store, packed: bytes) -> None:
    """Everything that reads a tree ends with a typed error, or with something."""
    other = trees.pack(store, [1, {"a": 2}], "x").packed
    for read in (
        lambda: trees.unpack(store, packed),
        lambda: list(trees.references(store, packed)),
        lambda: list(trees.diff(store, packed, other)),
        lambda: list(trees.diff(store, other, packed)),
    ):
        with contextlib.suppress(CorruptValue, UnknownType, ValueTooLarge, JournalDamaged):
            read()


@given(st.binary(max_size=60))
def test_random_bytes(store: Store, data: bytes) -> None:
    read_hostile(store, b"\x02" + data)


bodies = st.one_of(
    st.binary(max_size=5),
    st.sampled_from([b"\x93", b"\x82", b"\x91\x01", b"\xa1a\x01", b"\xc7\x00\x28", b"\xdd\xff\xff\xff\xff"]),
    st.builds(Ext, st.integers(-1, 4), st.sampled_from([bytes(32), b"", b"x" * 31])),
)


@given(st.lists(st.tuples(st.integers(-1, 2**33), bodies), max_size=5), st.booleans(), st.integers(1, 3))
def test_well_formed_nodes_with_forged_meaning(
    store: Store, pieces: list[tuple[int, Any]], inside: bool, kind: int
) -> None:
    flat = [part for piece in pieces for part in piece]
    read_hostile(store, tree(*flat))
    identity = forge(store, encode(flat))
    read_hostile(store, tree(0, b"\x92", 2, Ext(kind, identity)) if inside else tree(1, Ext(kind, identity)))


@given(st.data())
def test_damaged_roots(store: Store, data: st.DataObject) -> None:
    good = keep(store, GOOD).packed
    at = data.draw(st.integers(1, len(good) - 1))
    byte = bytes([data.draw(st.integers(0, 255))])
    read_hostile(store, good[:at] + byte + good[at + 1 :])
    read_hostile(store, good[:at])
    read_hostile(store, good[:at] + byte + good[at:])


NO_TREES = {
    "nothing": b"\x02",
    "no pieces": tree(),
    "no body": tree(0),
    "no count": tree(b"\x91", 0),
    "negative": tree(-1, b"\x01"),
    "endless": tree(2**40, b"\x01"),
    "empty piece": tree(0, b""),
    "short id": tree(0, Ext(1, b"x" * 31)),
    "unknown kind": tree(0, Ext(4, bytes(32))),
    "text": tree(0, "a"),
    "nested": tree(0, [0, b"\x01"]),
    "more after": tree(0, b"\x01") + b"\x01",
    "no value": tree(0, b"\x92", 1, b"\x01"),
    "two values": tree(0, b"\x01", 0, b"\x01"),
    "other marker": b"\x03" + encode([0, b"\x01"]),
}


@pytest.mark.parametrize("packed", NO_TREES.values(), ids=NO_TREES.keys())
def test_no_trees(store: Store, packed: bytes) -> None:
    with pytest.raises(CorruptValue):
        trees.unpack(store, packed)


def test_a_missing_or_changed_object_is_damage(store: Store) -> None:
    good = keep(store, [noise(n, 1_100) for n in range(100)])
    some = sorted(good.ids)[::9]
    for identity in some:
        [(size, data)] = behind(store, "SELECT size, data FROM objects WHERE id = ?", (identity,))
        behind(store, "DELETE FROM objects WHERE id = ?", (identity,))
        with pytest.raises(JournalDamaged, match="is missing"):
            trees.unpack(store, good.packed)
        wrong = bytes([*data[:-1], data[-1] ^ 1])
        behind(store, "INSERT INTO objects (id, size, data) VALUES (?, ?, ?)", (identity, size, wrong))
        with pytest.raises((JournalDamaged, CorruptValue)):
            trees.unpack(store, good.packed)
        behind(store, "UPDATE objects SET data = ? WHERE id = ?", (data, identity))
    assert len(trees.unpack(store, good.packed)) == 100


def test_a_missing_node_is_not_taken_for_one_without_references(store: Store) -> None:
    """A collector would remove everything below it."""
    good = keep(store, [noise(n, 1_200) for n in range(100)])
    links = [body for _, body in parse_node(good.packed[1:]) if not isinstance(body, bytes)]
    inner = next(link.identity for link in links if link.kind == GROUP)
    behind(store, "DELETE FROM objects WHERE id = ?", (inner,))
    with pytest.raises(JournalDamaged):
        list(trees.references(store, good.packed))


def make_doubled(store: Store, levels: int) -> bytes:
    """A few hundred bytes that stand for 600 << levels."""
    identity, kind = forge(store, b"\x00" * 600), LEAF
    for _ in range(levels):
        flat = [600, Ext(kind, identity)] * 2
        identity, kind = forge(store, encode(flat)), GROUP
    return tree(0, b"\xdd\xff\xff\xff\xff", 1, Ext(kind, identity))


def test_a_small_tree_that_stands_for_a_large_value(store: Store) -> None:
    packed = make_doubled(store, 60)
    tracemalloc.start()
    with pytest.raises(ValueTooLarge):
        trees.unpack(store, packed)
    assert tracemalloc.get_traced_memory()[1] < 200 * 1024 * 1024
    tracemalloc.stop()
    with pytest.raises(ValueTooLarge):
        list(trees.diff(store, packed, trees.pack(store, [1], "x").packed))
    assert len(set(trees.references(store, packed))) == 61


def test_a_tree_of_endless_levels(store: Store) -> None:
    identity, kind = forge(store, b"\x01"), LEAF
    for _ in range(LEVELS_MAX + 5):
        identity, kind = forge(store, encode([1, Ext(kind, identity)])), GROUP
    packed = tree(0, b"\x91", 1, Ext(kind, identity))
    with pytest.raises(ValueTooLarge, match="levels"):
        trees.unpack(store, packed)
    with pytest.raises(ValueTooLarge, match="levels"):
        list(trees.diff(store, packed, trees.pack(store, [1], "x").packed))
    assert len(set(trees.references(store, packed))) == LEVELS_MAX + 6


def test_containers_nested_by_reference(store: Store) -> None:
    one, other = (forge(store, encode([0, b"\x91", 1, data])) for data in (b"\x01", b"\x02"))
    for depth in range(2, 120):
        packed = [tree(0, b"\x91", 1, Ext(WHOLE, identity)) for identity in (one, other)]
        if depth > 100:
            for read in (lambda p=packed: trees.unpack(store, p[0]), lambda p=packed: list(trees.diff(store, *p))):
                with pytest.raises(ValueTooLarge):
                    read()
        one, other = (forge(store, encode([0, b"\x91", 1, Ext(WHOLE, identity)])) for identity in (one, other))


def test_objects_whose_fields_are_objects(store: Store) -> None:
    packed = []
    for last in (b"\x01", b"\x02"):
        identity = forge(store, encode([0, b"\x91", 1, last]))
        for _ in range(400):
            flat = [0, b"\x94", 3, encode(STRUCTURES[ExtensionTag.OBJECT]) + b"\xa1x\x01", 1, Ext(WHOLE, identity)]
            identity = forge(store, encode(flat))
        packed.append(tree(0, b"\x91", 1, Ext(WHOLE, identity)))
    with pytest.raises(CorruptValue, match="no fields"):
        list(trees.diff(store, *packed))


def test_an_object_larger_than_any_piece_is_refused(store: Store) -> None:
    large = forge(store, b"\x00" * 20_000)
    for packed in (tree(0, b"\xdc\x4e\x20", 20_000, Ext(LEAF, large)), tree(0, b"\x91", 1, Ext(GROUP, large))):
        with pytest.raises(CorruptValue, match="larger than any"):
            trees.unpack(store, packed)
    with pytest.raises(CorruptValue, match="larger than any"):
        list(trees.references(store, tree(0, b"\x91", 1, Ext(GROUP, large))))


def test_wrong_counts_do_not_change_the_value_and_are_noticed_by_diff(store: Store) -> None:
    right = tree(0, b"\x93", 3, b"\x01\x02\x03")
    assert trees.unpack(store, right) == [1, 2, 3]
    assert [change.path for change in trees.diff(store, right, b"\x00" + codec.encode([1, 3]))] == ["[1]"]
    for count in (0, 2, 4, 2**26):
        wrong = tree(0, b"\x93", count, b"\x01\x02\x03")
        with pytest.raises(CorruptValue):
            list(trees.diff(store, wrong, b"\x00" + codec.encode([1])))
