"""A store for trees, and values that are large enough to be split."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import strategies as st

from perdure.journal import trees
from perdure.platform.failpoints import Site
from perdure.store.base import Script, Statement, Store, UnitOfWork
from tests.unit.test_codec_values import hashable, values

ROW_BYTES = 100
"""What a row costs beside its content."""


class Keep(UnitOfWork[None]):
    """Write objects."""

    site = Site.WRITE

    def __init__(self, *statements: Statement) -> None:
        self.statements = statements

    def script(self) -> Script[None]:
        yield self.statements


def keep(store: Store, value: Any, known: Any = frozenset()) -> trees.ObjectTree:
    """A value in the store."""
    tree = trees.pack(store, value, "value", known)
    if tree.objects:
        store.submit(Keep(*tree.objects))
    return tree


def count_added_bytes(tree: trees.ObjectTree, seen: set[bytes]) -> int:
    """The bytes that a version adds to those of before."""
    new = {id: len(id) + len(data) + ROW_BYTES for id, _, data in (one.args for one in tree.objects) if id not in seen}
    seen.update(new)
    return len(tree.packed) + ROW_BYTES + sum(new.values())


def noise(seed: int, size: int) -> bytes:
    return random.Random(seed).randbytes(size)


def words(seed: int, count: int) -> str:
    chance = random.Random(seed)
    return " ".join(chance.choice(["die", "Zeit", "läuft", "ab", "時間", "7", "\n"]) for _ in range(count))


seeds = st.integers(0, 5)
sizes = st.integers(0, 9_000)
large = st.one_of(
    st.builds(noise, seeds, sizes),
    st.builds(lambda seed, size: bytearray(noise(seed, size)), seeds, sizes),
    st.builds(words, seeds, st.integers(0, 3_000)),
    st.builds(lambda seed, count: words(seed, count) + "\ud800", seeds, sizes),
    st.builds(lambda count: list(range(count)), st.integers(0, 3_000)),
    st.builds(lambda count: tuple(range(count)), st.integers(0, 3_000)),
    st.builds(lambda count, flag: [flag] * count, st.integers(0, 9_000), st.booleans()),
    st.builds(lambda seed, count: {str(n): noise(seed + n, n) for n in range(count)}, seeds, st.integers(0, 150)),
    st.builds(lambda seed, count: {n: noise(seed, n) for n in range(count)}, seeds, st.integers(0, 100)),
    st.builds(lambda count: set(range(count)), st.integers(0, 2_000)),
    st.builds(lambda seed, size: {words(seed, size): noise(seed, size)}, seeds, st.integers(0, 3_000)),
)
forests = st.recursive(
    st.one_of(values, large),
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.lists(inner, max_size=5).map(tuple),
        st.dictionaries(st.text(max_size=4), inner, max_size=5),
        st.dictionaries(hashable, inner, max_size=3),
    ),
    max_leaves=8,
)
"""Any value, and mostly a large one."""

small = st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.text("ab", max_size=3), st.binary(max_size=3))
plain = st.recursive(
    st.one_of(small, st.builds(words, seeds, st.integers(0, 2_000)), st.builds(noise, seeds, sizes)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=6),
        st.lists(st.integers(0, 9), min_size=200, max_size=600),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(st.text("abc", max_size=3), inner, max_size=6),
        st.dictionaries(st.integers(0, 5), inner, max_size=4),
        st.sets(st.integers(0, 2_000), max_size=8),
        st.integers(0, 900).map(lambda count: {f"k{n}": n * n for n in range(count)}),
        st.integers(0, 60).map(lambda count: [{"n": n, "text": noise(n, 600)} for n in range(count)]),
    ),
    max_leaves=10,
)
"""Values whose parts can be found again by a path: NaN is no key."""


def containers(value: Any) -> list[Any]:
    """Every list, dict, set and bytearray that can be changed in place, however deep."""
    inside = value.values() if type(value) is dict else value if type(value) in (list, tuple) else ()
    here = [value] if type(value) in (list, dict, set, bytearray) else []
    return here + [found for part in inside for found in containers(part)]


def edit(value: Any, chance: random.Random, new: Any) -> None:
    """Change something in place, somewhere."""
    places = containers(value)
    if not places:
        return
    place = chance.choice(places)
    if type(place) is dict:
        _edit_dict(place, chance, new)
    elif type(place) is set:
        place.symmetric_difference_update({chance.randrange(2_000)})
    elif type(place) is bytearray:
        place.insert(chance.randint(0, len(place)), 7)
    else:
        _edit_list(place, chance, new)


def _edit_dict(place: dict[Any, Any], chance: random.Random, new: Any) -> None:
    keys = list(place)
    if keys and chance.random() < 0.7:
        key = chance.choice(keys)
        if chance.random() < 0.3:
            del place[key]
        else:
            place[key] = new
    else:
        place[f"new{chance.randrange(99)}"] = new


def _edit_list(place: list[Any], chance: random.Random, new: Any) -> None:
    at = chance.randint(0, len(place))
    choice = chance.random()
    if choice < 0.4 or at == len(place):
        place.insert(at, new)
    elif choice < 0.7:
        del place[at]
    else:
        place[at] = new
