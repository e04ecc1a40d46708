"""Bytes that nobody of ours wrote: a typed error or a value, in bounded time and memory, and never code."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.msgpack import Ext, encode

from perdure.errors import CorruptValue, UnknownType, ValueTooLarge
from perdure.values import codec, limits
from perdure.values.codec import decoder as read
from perdure.values.codec import leaves
from perdure.values.codec.tags import STRUCTURES, ExtensionTag
from tests.unit.test_codec_values import values


@codec.stored("t-hostile", version=2)
@dataclass(frozen=True)
class Thing:
    a: Any
    b: Any


OPEN_ENDED = tuple(encode(STRUCTURES[tag]) for tag in (ExtensionTag.OBJECT, ExtensionTag.ERROR))
"""Names of other types change what comes back, so here the bytes need not be the same again."""


def read_hostile(data: bytes) -> None:
    """Decode; whatever comes, it must be a typed error or something that we would have written like this."""
    try:
        value = codec.decode(data)
    except (CorruptValue, UnknownType, ValueTooLarge):
        return
    again = codec.encode(value)
    if not any(mark in data for mark in OPEN_ENDED):
        assert again == data


def node(tag: ExtensionTag, *parts: Any) -> bytes:
    return encode([STRUCTURES[tag], *parts])


def leaf(tag: int, payload: bytes) -> bytes:
    return encode(Ext(int(tag), payload))


@given(st.binary(max_size=64))
def test_random_bytes(data: bytes) -> None:
    read_hostile(data)


tags = st.sampled_from([int(tag) for tag in ExtensionTag])
marks = st.sampled_from(list(STRUCTURES.values()))
parts: Any = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(), st.text(max_size=4),
        st.binary(max_size=9), marks,
        st.builds(Ext, st.one_of(tags, st.integers(-128, 127)), st.binary(max_size=9)),
        st.builds(Ext, tags, values.map(lambda value: codec.encode(value)[2:])),
        st.sampled_from(["t-hostile", "ValueError", "ExceptionGroup", "OSError", "UnicodeDecodeError", -1, 0, 1, 2]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=6),
        st.dictionaries(st.one_of(st.text(max_size=4), st.sampled_from(["a", "b", "errno"])), inner, max_size=4),
        st.builds(lambda mark, rest: [mark, *rest], marks, st.lists(inner, max_size=6)),
        st.builds(
            lambda name, version, fields: [STRUCTURES[ExtensionTag.OBJECT], name, version, fields],
            st.just("t-hostile"), st.integers(0, 3), st.fixed_dictionaries({"a": inner, "b": inner}),
        ),
        st.builds(
            lambda name, version, args, more: [STRUCTURES[ExtensionTag.ERROR], name, version, "text", args, more],
            st.sampled_from(["ValueError", "ExceptionGroup", "OSError", "UnicodeDecodeError", "SyntaxError", "x"]),
            st.integers(-2, 2), st.lists(inner, max_size=5), st.dictionaries(st.sampled_from(["errno", "x"]), inner),
        ),
    ),
    max_leaves=20,
)  # fmt: skip


@given(parts)
def test_well_formed_msgpack_with_forged_meaning(tree: Any) -> None:
    read_hostile(encode(tree))


@given(values, st.data())
def test_damaged_encodings(value: Any, data: st.DataObject) -> None:
    good = codec.encode([value, Thing(value, 1), ValueError(value)])
    at = data.draw(st.integers(0, len(good) - 1))
    kind = data.draw(st.sampled_from(["flip", "cut", "insert", "delete", "repeat"]))
    byte = bytes([data.draw(st.integers(0, 255))])
    bad = {
        "flip": good[:at] + byte + good[at + 1 :],
        "cut": good[:at],
        "insert": good[:at] + byte + good[at:],
        "delete": good[:at] + good[at + 1 :],
        "repeat": good + good[at:],
    }[kind]
    read_hostile(bad)


def test_every_cut_and_every_flip_of_one_value() -> None:
    good = codec.encode([(1, {2: Decimal("1.5")}), {"k": Thing(b"x", {1, 2})}, KeyError("k"), Fraction(1, 3), 2**70])
    for at in range(len(good)):
        with pytest.raises(CorruptValue):
            codec.decode(good[:at])
        for byte in range(256):
            read_hostile(good[:at] + bytes([byte]) + good[at + 1 :])


def _nest_containers(opening: bytes, depth: int) -> bytes:
    return opening * depth + b"\x01"


@pytest.mark.parametrize(
    "opening",
    [b"\x91", b"\x81\xa1k", b"\x92\xc7\x00\x28", b"\x92\xc7\x00\x2a", b"\x93\xc7\x00\x2b\x01"],
    ids=["list", "map", "tuple", "frozenset", "other map"],
)
def test_deep_nesting(opening: bytes) -> None:
    assert codec.encode(codec.decode(_nest_containers(opening, 100))) == _nest_containers(opening, 100)
    for depth in (101, 200, 5_000, 1_000_000):
        with pytest.raises(ValueTooLarge, match="nested more than 100 deep"):
            codec.decode(_nest_containers(opening, depth))


@pytest.mark.parametrize(
    ("tag", "before", "parts"), [(ExtensionTag.OBJECT, b"\xa1x\x01", 4), (ExtensionTag.ERROR, b"\xa1x\x01\xa1t\x90", 6)]
)
@pytest.mark.parametrize("depth", [2, 99, 400, 5_000])
def test_objects_in_place_of_the_parts_of_objects(tag: ExtensionTag, before: bytes, parts: int, depth: int) -> None:
    """Such a chain would have no depth: it ended in a RecursionError."""
    opening = bytes([0x90 + parts]) + encode(STRUCTURES[tag]) + before
    with pytest.raises((CorruptValue, ValueTooLarge)):
        codec.decode(opening * depth + b"\x80")


def test_deep_nesting_through_objects_and_exceptions() -> None:
    value: Any = 1
    for _ in range(100):
        value = Thing(value, 0)
    data = codec.encode(value)
    assert codec.decode(data) == value
    start = codec.encode(Thing(1, 0)).partition(b"\xa1a")[0] + b"\xa1a"
    with pytest.raises(ValueTooLarge):
        codec.decode(start * 101 + b"\x01" + b"\xa1b\x00" * 101)
    error: Any = 1
    for _ in range(100):
        error = ValueError(error)
    assert codec.encode(codec.decode(codec.encode(error))) == codec.encode(error)


def _with_stack(frames: int, then: Callable[[], Any]) -> Any:
    return then() if frames == 0 else _with_stack(frames - 1, then)


def test_a_full_stack_is_not_blamed_on_the_bytes() -> None:
    """Wherever the stack of the caller ends, a good value is read, or RecursionError says what the matter is."""
    for value in (eval("[" * 90 + "(1,)" + "]" * 90), [[[[[[1]]]]]]):
        good = codec.encode(value)
        outcomes = set()
        for frames in range(sys.getrecursionlimit()):
            try:
                outcomes.add(_with_stack(frames, lambda data=good: codec.decode(data)) == value)
            except RecursionError:
                outcomes.add("full")
        assert outcomes == {True, "full"}


def test_no_memory_is_a_typed_error_too(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def decode(self, _: bytes) -> Any:
            raise MemoryError

    monkeypatch.setattr(read, "PLAIN", Full())
    with pytest.raises(ValueTooLarge):
        codec.decode(b"\x01")


def test_size_is_checked_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "VALUE_BYTES_MAX", 10)
    with pytest.raises(ValueTooLarge):
        codec.decode(b"\xaa" + b"x" * 10)


def test_numbers_over_the_limit() -> None:
    for payload in (b"\x01" * (leaves.INTEGER_BYTES_MAX + 1), b"\x01" * 10_000_000):
        with pytest.raises(ValueTooLarge):
            codec.decode(leaf(ExtensionTag.INTEGER, payload))
    big = b"\x01" * 100_000
    with pytest.raises(ValueTooLarge):
        codec.decode(leaf(ExtensionTag.FRACTION, encode([big, big])))


def _make_colliding_tuples(count: int) -> list[tuple[int, int]]:
    """Pairs of integers whose tuples share a hash: CPython's xxHash has no secret."""
    p1, p2, p5, modulus = 11400714785074694791, 14029467366897019727, 2870177450012600261, 2**64
    inverse_1, inverse_2, target = pow(p1, -1, modulus), pow(p2, -1, modulus), 12345678901234567

    def rotate(number: int, by: int) -> int:
        return ((number << by) | (number >> (64 - by))) % modulus

    found, first = [], 0
    while len(found) < count:
        first += 1
        lane = rotate((p5 + first * p2) % modulus, 31) * p1 % modulus
        second = (rotate(target * inverse_1 % modulus, 33) - lane) * inverse_2 % modulus
        second -= modulus if second >= 2**63 else 0
        if abs(second) < 2**61 - 1 and second != -1:
            found.append((first, second))
    return found


@pytest.mark.timeout(120)
def test_keys_that_collide_cost_no_time() -> None:
    """16,000 such keys would keep a dict busy for seconds, these for much longer than the test may take."""
    pairs = _make_colliding_tuples(300_000)
    assert len({hash(pair) for pair in pairs}) == 1
    native = b"\xdf" + len(pairs).to_bytes(4, "big") + b"".join(encode(pair) + b"\xc0" for pair in pairs)
    marked = [[STRUCTURES[ExtensionTag.TUPLE], *pair] for pair in pairs]
    as_set = node(ExtensionTag.SET, *sorted(marked, key=encode))
    as_map = node(ExtensionTag.MAP, *(part for pair in marked for part in (pair, None)))
    big = [Ext(int(ExtensionTag.INTEGER), leaves.dump_integer(number * (2**61 - 1))) for number in range(10, 300_000)]
    numbers = node(ExtensionTag.SET, *sorted(big, key=encode))
    for data, expected in (
        (native, CorruptValue),
        (as_set, ValueTooLarge),
        (as_map, ValueTooLarge),
        (numbers, ValueTooLarge),
    ):
        with pytest.raises(expected):
            codec.decode(data)


@pytest.mark.parametrize(
    "data",
    [
        b"\xdd\x00\x0f\xff\xff" * 1000 + b"\xc0" * 1_000_000,
        b"\xdf\x00\x07\xff\xff\xa1a" * 1000 + b"\xc0" * 1_000_000,
        b"\x92\xc7\x00\x28" * 10_000 + b"\xc0" * 1_000_000,
        leaf(ExtensionTag.NUMPY_ARRAY, encode(["<f8", [2**50], "C", b"x" * 1_000_000])),
        leaf(ExtensionTag.DECIMAL, b"1" * 1_000_000 + b"E+99999"),
    ],
    ids=["arrays that lie", "maps that lie", "deep tuples", "array that lies", "long decimal"],
)
def test_memory_stays_within_a_few_times_the_bytes(data: bytes) -> None:
    tracemalloc.start()
    try:
        read_hostile(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 40 * len(data)


def test_a_payload_deep_down_is_not_copied_at_each_level() -> None:
    value: Any = b"x" * 2_000_000
    for _ in range(99):
        value = (value,)
    data = codec.encode(value)
    tracemalloc.start()
    try:
        codec.decode(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 6 * len(data)
