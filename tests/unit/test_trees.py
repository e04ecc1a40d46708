"""Values that come in versions: each comes back exactly, and adds little to those before it."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import NotStorable, UnknownType, ValueTooLarge
from perdure.journal import trees
from perdure.journal.trees.chunking import cuts, text_cuts
from perdure.store import open_store
from perdure.store.base import Script, Store
from perdure.values import codec
from tests.unit.test_codec_values import EXAMPLES, is_same
from tests.unit.tree_values import count_added_bytes, edit, forests, keep, noise, plain, words
from tests.unit.units import behind


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    opened_store = open_store(f"sqlite:///{tmp_path_factory.mktemp('trees')}/perdure.db")
    yield opened_store
    opened_store.close()


# -- round trip -----------------------------------------------------------------------------------------------------


@given(forests)
def test_every_value_comes_back_exactly(store: Store, value: Any) -> None:
    tree = keep(store, value)
    assert is_same(trees.unpack(store, tree.packed), value)
    assert set(trees.references(store, tree.packed)) == tree.ids


def test_the_odd_ones_come_back_too(store: Store) -> None:
    value = [[one, noise(number, 700)] for number, one in enumerate(EXAMPLES)]
    back = trees.unpack(store, keep(store, value).packed)
    assert codec.encode(back) == codec.encode(value)


def test_small_values_are_packed_as_everywhere(store: Store) -> None:
    tree = trees.pack(store, {"a": (1,)}, "x")
    assert tree == trees.ObjectTree(b"\x00" + codec.encode({"a": (1,)}), (), frozenset())


def test_a_dict_keeps_its_order(store: Store) -> None:
    value = {str(number * 7919 % 1000): number for number in range(1000)}
    assert list(trees.unpack(store, keep(store, value).packed).items()) == list(value.items())


def test_every_reading_is_a_copy(store: Store) -> None:
    inner = list(range(2_000))
    packed = keep(store, {"a": inner, "b": inner}).packed
    back = trees.unpack(store, packed)
    back["a"].append(1)
    assert trees.unpack(store, packed) == {"a": inner, "b": inner} != back
    assert back["b"] == inner


@codec.stored("t-trees-note", version=1)
@dataclass
class Note:
    text: str
    lines: list[Any]


def test_registered_types_are_split_and_come_back(store: Store) -> None:
    note = Note("n", [{"n": number, "data": noise(number, 300)} for number in range(100)])
    first = keep(store, {"notes": [note]})
    assert trees.unpack(store, first.packed) == {"notes": [note]}
    note.lines.append("more")
    second = keep(store, {"notes": [note]})
    assert len(second.ids - first.ids) < 8 < len(second.ids & first.ids)


def test_refusals_tell_the_path(store: Store) -> None:
    value: dict[str, Any] = {"messages": [{"content": noise(n, 900)} for n in range(50)]}
    value["messages"][3]["content"] = object()
    with pytest.raises(NotStorable, match=r"state\.messages\[3\]\.content: object cannot be stored"):
        trees.pack(store, value, "state")
    value["messages"][3]["content"] = value
    with pytest.raises(NotStorable, match="circular"):
        trees.pack(store, value, "state")


def test_depth_is_that_of_the_codec(store: Store) -> None:
    value: Any = noise(1, 5_000)
    for depth in range(100):
        value = [value, noise(depth, 700)]
    assert trees.unpack(store, keep(store, value).packed) == value
    with pytest.raises(ValueTooLarge, match="100 deep"):
        trees.pack(store, [value], "x")


def test_the_same_value_makes_the_same_tree_whatever_was_before(store: Store) -> None:
    value = [noise(n, n % 900) for n in range(300)]
    tree = trees.pack(store, value, "x")
    assert trees.pack(store, copy.deepcopy(value), "y", tree.ids) == trees.ObjectTree(tree.packed, (), tree.ids)


# -- versions -------------------------------------------------------------------------------------------------------


@given(plain, st.integers(0, 2**32), st.integers(1, 4), plain)
def test_no_edit_in_place_is_missed(store: Store, value: Any, seed: int, edits: int, new: Any) -> None:
    chance = random.Random(seed)
    value, known = [value, {"new": new}], frozenset[bytes]()
    versions = []
    for _ in range(edits):
        tree = keep(store, value, known)
        versions.append((tree, copy.deepcopy(value)))
        known = tree.ids
        edit(value, chance, copy.deepcopy(new))
    for tree, then in versions:
        assert is_same(trees.unpack(store, tree.packed), then)


def test_what_is_known_is_not_written_again(store: Store) -> None:
    value = [noise(n, 1_000) for n in range(200)]
    first = keep(store, value)
    assert len(first.objects) == len(first.ids) > 200
    second = trees.pack(store, [*value, noise(999, 1_000)], "x", first.ids)
    assert {one.args[0] for one in second.objects} == second.ids - first.ids
    assert 1 <= len(second.objects) <= 6
    again = trees.pack(store, [*value, noise(999, 1_000)], "x")
    assert {one.args[0] for one in again.objects} == second.ids == again.ids


def test_equal_parts_of_one_value_are_written_once(store: Store) -> None:
    part = [noise(n, 600) for n in range(50)]
    tree = trees.pack(store, {str(n): part for n in range(20)}, "x")
    assert len(tree.objects) == len(tree.ids) < 80


def conversation(number: int) -> dict[str, Any]:
    return {"role": "user", "content": noise(number, 1024)}


def test_a_thousand_versions_of_a_conversation_take_three_megabytes(store: Store) -> None:
    """Each message is a kilobyte that cannot be compressed."""
    messages: list[Any] = []
    seen: set[bytes] = set()
    known = frozenset[bytes]()
    size = early = 0
    for number in range(1_000):
        messages.append(conversation(number))
        tree = trees.pack(store, {"messages": messages, "step": number}, "x", known)
        size += count_added_bytes(tree, seen)
        known = tree.ids
        early = size if number == 99 else early
    assert size <= 3_000_000
    assert (size - early) / 900 <= 1.25 * early / 100, "the last version costs what the first did"


def test_a_growing_text_adds_little_to_each_version(store: Store) -> None:
    log, seen, size = "", set[bytes](), 0
    for number in range(300):
        log += noise(number, 512).hex()
        size += count_added_bytes(trees.pack(store, {"log": log}, "x"), seen)
    assert size <= 300 * 3_000


def mean_added(store: Store, value: Any, change: Callable[[Any, int], Any]) -> float:
    sizes = list_added_bytes(store, value, change)
    return sum(sizes) / len(sizes)


def list_added_bytes(store: Store, value: Any, change: Callable[[Any, int], Any]) -> list[int]:
    tree = trees.pack(store, value, "x")
    sizes = []
    for number in range(30):
        changed = copy.copy(value)
        changed = change(changed, number) or changed
        sizes.append(count_added_bytes(trees.pack(store, changed, "x", tree.ids), set(tree.ids)))
    return sizes


def test_one_key_of_five_thousand_adds_four_kilobytes(store: Store) -> None:
    value = {f"key-{number}": noise(number, 100) for number in range(5_000)}
    assert (
        max(list_added_bytes(store, value, lambda v, n: v.update({f"key-{n * 163}": noise(10_000 + n, 100)}))) <= 3_300
    )
    assert max(list_added_bytes(store, value, lambda v, n: v.pop(f"key-{n * 163}") and None)) <= 4_096


def test_another_value_of_a_key_moves_no_cut(store: Store) -> None:
    """One leaf, and one node on each level above it, are all that is written."""
    value = {f"key-{number}": noise(number, 100) for number in range(5_000)}
    tree = trees.pack(store, value, "x")
    for number in range(0, 5_000, 97):
        changed = trees.pack(store, value | {f"key-{number}": noise(10_000 + number, 100)}, "x", tree.ids)
        assert len(changed.ids) == len(tree.ids)
        assert len(changed.objects) <= 4


@pytest.mark.parametrize(
    "change",
    [
        lambda value, n: value.insert(0, conversation(10_000 + n)),
        lambda value, n: value.insert(n * 30, conversation(10_000 + n)),
        lambda value, n: value.__setitem__(n * 30, conversation(10_000 + n)),
        lambda value, n: value.pop(n * 30) and None,
        lambda value, n: value.__setitem__(n * 30, value[n * 30] | {"role": "system"}),
    ],
    ids=["at the front", "in the middle", "another", "without one", "part of one"],
)
def test_edits_of_a_long_list_add_little(store: Store, change: Any) -> None:
    value = [conversation(number) for number in range(1_000)]
    assert mean_added(store, value, change) <= 12_000 / 2


@pytest.mark.parametrize(
    "value",
    [
        noise(1, 300_000),
        words(1, 60_000),
        noise(1, 100_000).hex(),
        "".join(map(str, range(50_000))),
        list(range(50_000)),
        [flag == "1" for flag in f"{int.from_bytes(noise(1, 6_000), 'big'):b}"],
        tuple(words(n, 3) for n in range(9_000)),
    ],
    ids=["bytes", "text", "hex", "digits", "numbers", "flags", "short texts"],
)
def test_cuts_follow_the_content_when_something_is_put_before_it(store: Store, value: Any) -> None:
    front = {str: "x", bytes: b"x", list: [True], tuple: ("x",)}[type(value)]
    first, second = trees.pack(store, value, "x"), trees.pack(store, front + value, "x")
    assert len(first.ids) > 20
    assert len(second.ids - first.ids) <= 12


@given(
    st.lists(st.one_of(st.integers(1, 12), st.integers(200, 300), st.integers(480, 560)), max_size=400), st.booleans()
)
def test_no_sizes_of_elements_are_too_awkward(store: Store, sizes: list[int], paired: bool) -> None:
    value: Any = [noise(size % 7, size) for size in sizes]
    value = {f"{number}" * (number % 70 + 1): part for number, part in enumerate(value)} if paired else value
    tree = keep(store, value)
    assert trees.unpack(store, tree.packed) == value
    assert len(tree.packed) < 1_100


def test_objects_are_in_the_table_once(store: Store) -> None:
    tree = keep(store, [noise(n, 1_000) for n in range(-50, 0)])
    before = len(behind(store, "SELECT id FROM objects"))
    keep(store, [noise(n, 1_000) for n in range(-50, 0)])
    assert len(behind(store, "SELECT id FROM objects")) == before >= len(tree.ids)


# -- cutting --------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 500))), st.integers(1, 900))
def test_cuts_leave_nothing_out(elements: list[tuple[int, int]], reach: int) -> None:
    edges = [0]
    for _, size in elements:
        edges.append(edges[-1] + size)
    found = list(cuts([mark for mark, _ in elements], edges, reach))
    assert found == sorted(set(found))
    assert found[-1:] == ([len(elements)] if elements else [])
    begin = 0
    for cut in found:
        assert cut - begin == 1 or edges[cut] - edges[begin] <= 5 * reach
        begin = cut


def test_a_change_moves_only_cuts_near_it() -> None:
    chance = random.Random(3)
    marks = [chance.randrange(2**32) for _ in range(2_000)]
    edges = [10 * n for n in range(2_001)]
    before = list(cuts(marks, edges, 100))
    for place in range(500, 1500, 37):
        changed = [*marks[:place], chance.randrange(2**32), *marks[place + 1 :]]
        after = set(cuts(changed, edges, 100))
        assert all(abs(cut - place) <= 60 for cut in after.symmetric_difference(before))


@given(st.binary(max_size=40), st.integers(0, 3), st.integers(0, 2_000))
def test_parts_of_a_text_follow_each_other(start: bytes, seed: int, times: int) -> None:
    data = start * times + noise(seed, times * 9)
    parts = list(text_cuts(memoryview(data)))
    assert b"".join(data[begin:end] for begin, end in parts) == data
    assert all(end - begin <= 4_096 for begin, end in parts)


# -- what a collector needs -----------------------------------------------------------------------------------------


def test_references_need_no_types_and_open_no_leaves(store: Store) -> None:
    big = [Note("x", [noise(number, 900) for number in range(100)])]
    tree = keep(store, big)
    forged = tree.packed
    entry = codec.registry._by_name.pop("t-trees-note")
    try:
        with pytest.raises(UnknownType):
            trees.unpack(store, forged)
        assert set(trees.references(store, forged)) == tree.ids
    finally:
        codec.registry._by_name["t-trees-note"] = entry
    asked: list[bytes] = []
    assert drive(store, trees.reachable(store, [forged, forged]), asked) == tree.ids
    assert len(asked) == len(set(asked)) < len(tree.ids) / 5


def drive(store: Store, script: Script[set[bytes]], asked: list[bytes]) -> set[bytes]:
    try:
        statements = next(script)
        while True:
            asked += [one.args[0] for one in statements]
            statements = script.send([store.read(one.name, one.args) for one in statements])
    except StopIteration as done:
        found: set[bytes] = done.value
        return found


def test_references_of_other_packed_values(store: Store) -> None:
    assert list(trees.references(store, trees.pack(store, 1, "x").packed)) == []
    assert list(trees.references(store, b"\x01" + bytes(32))) == [bytes(32)]
