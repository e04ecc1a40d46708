"""What changed between two versions: every difference, and nothing else, by its path."""

from __future__ import annotations

import copy
import random
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import CorruptValue, UnknownType
from perdure.journal import trees
from perdure.journal.trees import Change
from perdure.journal.trees.align import regions
from perdure.store import open_store
from perdure.store.base import Store
from perdure.values import codec
from tests.unit.tree_values import edit, keep, noise, plain, words


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    opened_store = open_store(f"sqlite:///{tmp_path_factory.mktemp('diff')}/perdure.db")
    yield opened_store
    opened_store.close()


def changes(store: Store, before: Any, after: Any) -> list[Change]:
    return list(trees.diff(store, keep(store, before).packed, keep(store, after).packed))


def diff_texts(store: Store, before: Any, after: Any) -> list[tuple[str, str]]:
    return [(change.path, change.kind) for change in changes(store, before, after)]


def test_collections_are_compared_by_their_content(store: Store) -> None:
    assert diff_texts(store, {"d": deque([1, 2], 9)}, {"d": deque([1, 3], 9)}) == [(".d[1]", "changed")]
    assert diff_texts(store, deque([1], 9), deque([1], 8)) == [("", "changed")]
    assert diff_texts(store, Counter(a=1), Counter(a=1, b=2)) == [(".b", "added")]
    assert diff_texts(store, defaultdict(list, a=[1]), defaultdict(list, a=[1, 2])) == [(".a[1]", "added")]
    assert diff_texts(store, defaultdict(int, a=1), {"a": 1}) == [("", "changed")]
    long = [noise(number, 500) for number in range(300)]
    assert diff_texts(store, deque(long), deque([*long, "one more"])) == [("[300]", "added")]


# -- applying -------------------------------------------------------------------------------------------------------


def apply_steps(value: Any, steps: list[Change]) -> Any:
    """The value with the changes made, whose steps begin here."""
    if any(not change.steps for change in steps):
        [whole] = steps
        return whole.after
    if type(value) in (list, tuple):
        return type(value)(_apply_to_list(list(value), steps))
    if type(value) is set:
        gone = {change.before for change in steps if change.kind == "removed"}
        return (value - gone) | {change.after for change in steps if change.kind == "added"}
    for change in [change for change in steps if len(change.steps) == 1 and change.kind == "removed"]:
        del value[change.steps[0]]
    for change in [change for change in steps if len(change.steps) == 1 and change.kind == "added"]:
        value[change.steps[0]] = change.after
    return value | {key: apply_steps(value[key], inner) for key, inner in _inner(steps).items()}


def _apply_to_list(value: list[Any], steps: list[Change]) -> list[Any]:
    gone = {change.steps[0] for change in steps if len(change.steps) == 1 and change.kind == "removed"}
    value = [item for number, item in enumerate(value) if number not in gone]
    for change in steps:
        if len(change.steps) == 1 and change.kind == "added":
            value.insert(change.steps[0], change.after)
    for number, inner in _inner(steps).items():
        value[number] = apply_steps(value[number], inner)
    return value


def _inner(steps: list[Change]) -> dict[Any, list[Change]]:
    found: dict[Any, list[Change]] = {}
    for change in steps:
        if len(change.steps) > 1 or change.kind == "changed":
            inner = Change(change.steps[1:], change.kind, change.before, change.after)
            found.setdefault(change.steps[0], []).append(inner)
    return found


def canonical(value: Any) -> Any:
    """Without the order of dicts, and with True apart from 1."""
    if type(value) is dict:
        return dict, sorted(((repr(key), canonical(item)) for key, item in value.items()), key=repr)
    if type(value) in (list, tuple):
        return type(value), [canonical(item) for item in value]
    return type(value), sorted(value) if type(value) is set else value


@given(plain, st.integers(0, 2**32), st.integers(0, 4), plain)
def test_the_changes_make_one_version_the_next(store: Store, value: Any, seed: int, edits: int, new: Any) -> None:
    chance = random.Random(seed)
    after = [value, {"new": new}, [noise(n, 600) for n in range(30)], {f"k{n}": noise(n, 40) for n in range(99)}]
    before = copy.deepcopy(after)
    for _ in range(edits):
        edit(after, chance, copy.deepcopy(new))
    found = changes(store, before, after)
    assert bool(found) == (canonical(before) != canonical(after))
    assert canonical(apply_steps(before, found)) == canonical(after)


@given(plain, plain)
def test_the_changes_make_any_value_any_other(store: Store, before: Any, after: Any) -> None:
    found = changes(store, before, after)
    assert bool(found) == (canonical(before) != canonical(after))
    assert not found or canonical(apply_steps(copy.deepcopy(before), found)) == canonical(after)


@given(plain)
def test_nothing_changed(store: Store, value: Any) -> None:
    assert changes(store, value, copy.deepcopy(value)) == []


# -- what a reader sees ---------------------------------------------------------------------------------------------

MESSAGES = [{"role": "user", "content": noise(number, 1_000)} for number in range(300)]
NEW = {"role": "user", "content": "new"}


@pytest.mark.parametrize("place", [0, 1, 150, 299, 300])
def test_an_insert_is_one_insert(store: Store, place: int) -> None:
    after = [*MESSAGES[:place], NEW, *MESSAGES[place:]]
    assert changes(store, {"messages": MESSAGES}, {"messages": after}) == [
        Change(("messages", place), "added", after=NEW)
    ]
    assert changes(store, {"messages": after}, {"messages": MESSAGES}) == [
        Change(("messages", place), "removed", before=NEW)
    ]


def test_an_edit_deep_inside_is_told_by_its_path(store: Store) -> None:
    after = copy.deepcopy(MESSAGES)
    after[7]["content"] = "other"
    after[250]["tool calls"] = (1,)
    assert diff_texts(store, {"messages": MESSAGES}, {"messages": after}) == [
        (".messages[7].content", "changed"),
        (".messages[250]['tool calls']", "added"),
    ]


def test_a_dict_that_loses_its_only_key_that_is_no_text_is_still_told_path_by_path(store: Store) -> None:
    texts = {f"k{n}": noise(n, 100) for n in range(300)}
    before, after = texts | {7: "x", "a": {"b": 1}}, texts | {"a": {"b": 2}}
    assert diff_texts(store, before, after) == [("[7]", "removed"), (".a.b", "changed")]
    assert diff_texts(store, after, before) == [(".a.b", "changed"), ("[7]", "added")]
    assert diff_texts(store, {"deep": {7: 1}}, {"deep": {}}) == [(".deep[7]", "removed")]


def test_changes_at_both_ends_leave_the_middle_alone(store: Store) -> None:
    after = [NEW, *MESSAGES[1:-1], NEW, NEW]
    assert diff_texts(store, MESSAGES, after) == [
        ("[0].content", "changed"), ("[299].content", "changed"), ("[300]", "added"),
    ]  # fmt: skip


def test_what_is_equal_is_not_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = keep(store, MESSAGES), keep(store, [*MESSAGES[:150], NEW, *MESSAGES[150:]])
    many = {f"key-{number}": noise(number, 100) for number in range(5_000)}
    one, other = keep(store, many), keep(store, many | {"key-9": b"x"})
    asked: list[bytes] = []
    read = store.read
    monkeypatch.setattr(store, "read", lambda name, args: asked.append(args[0]) or read(name, args))
    assert len(list(trees.diff(store, before.packed, after.packed))) == 1
    assert len(list(trees.diff(store, one.packed, other.packed))) == 1
    assert len(asked) < 200 < len(before.ids | one.ids) / 4  # where it is cut depends on the secret of the store


def test_dicts_sets_and_tuples(store: Store) -> None:
    before = {"a": 1, "gone": 2, "t": (1, 2, 3), "s": {1, 2}, "m": {1: "x", (2,): "y"}, "same": [1]}
    after = {"same": [1], "a": 1.0, "t": (1, 3), "s": {2, 3}, "m": {1: "z", (2,): "y"}, "new": None}
    expected = [
        (".a", "changed"), (".gone", "removed"), (".t[1]", "removed"), (".s[1]", "removed"), (".s[3]", "added"),
        (".m[1]", "changed"), (".new", "added"),
    ]  # fmt: skip
    assert diff_texts(store, before, after) == expected
    around = [noise(number, 700) for number in range(20)]
    assert diff_texts(store, {**before, "around": around}, {**after, "around": around}) == expected


def test_another_type_is_a_change_of_the_whole(store: Store) -> None:
    assert changes(store, [1, 2], (1, 2)) == [Change((), "changed", [1, 2], (1, 2))]
    assert changes(store, {"a": []}, {"a": {}}) == [Change(("a",), "changed", [], {})]
    text = words(1, 4_000)
    assert changes(store, text, text + "x") == [Change((), "changed", text, text + "x")]
    assert diff_texts(store, {"e": ValueError(1)}, {"e": ValueError(2)}) == [(".e", "changed")]


@codec.stored("t-diff-state")
class State(Enum):
    OPEN = 1
    DONE = 2


@codec.stored("t-diff-task")
@dataclass(frozen=True)
class Task:
    title: str
    state: State
    notes: list[Any]


@codec.stored("t-diff-other")
@dataclass(frozen=True)
class Other:
    title: str
    state: State
    notes: list[Any]


def test_fields_of_registered_types(store: Store) -> None:
    for notes in ([], [noise(number, 900) for number in range(20)]):
        task = Task("t", State.OPEN, notes)
        done = replace(task, state=State.DONE, notes=[*notes, "n"])
        assert diff_texts(store, [task], [done]) == [
            ("[0].state.name", "changed"),
            (f"[0].notes[{len(notes)}]", "added"),
        ]
        other = Other("t", State.OPEN, notes)
        assert changes(store, [task], [other]) == [Change((0,), "changed", task, other)]


def test_types_are_needed_for_values_only(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = keep(store, [Task("t", State.OPEN, [])]), keep(store, [Task("u", State.DONE, []), State.OPEN])
    monkeypatch.delitem(codec.registry._by_name, "t-diff-state")
    with pytest.raises(UnknownType):
        list(trees.diff(store, before.packed, after.packed))
    found = trees.diff(store, before.packed, after.packed, decode=lambda data: len(data))
    assert [(change.kind, change.after is not None) for change in found] == [
        ("changed", True), ("changed", True), ("added", True),
    ]  # fmt: skip


def test_only_trees_are_compared(store: Store) -> None:
    for packed in (b"", b"\x01" + bytes(32), b"\x03"):
        with pytest.raises(CorruptValue):
            list(trees.diff(store, packed, packed + b"1"))


# -- aligning -------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 9)), st.lists(st.integers(0, 9)))
def test_outside_of_the_regions_all_is_equal(one: list[int], other: list[int]) -> None:
    made, a, b = [], 0, 0
    for a_from, a_to, b_from, b_to in regions(one, other):
        assert one[a:a_from] == other[b:b_from]
        assert a_from < a_to or b_from < b_to
        made += [*one[a:a_from], *other[b_from:b_to]]
        a, b = a_to, b_to
    assert made + one[a:] == other


def test_long_sequences_without_anything_unique_are_no_trouble() -> None:
    one, other = [0, 1] * 50_000, [1, 0, 0] * 40_000
    assert list(regions(one, other))
