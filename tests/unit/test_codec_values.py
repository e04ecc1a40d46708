"""Every value comes back exactly: the same types, all the way down. Other files borrow the strategies."""

from __future__ import annotations

import decimal
import struct
from collections import Counter, OrderedDict, defaultdict, deque
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import NotStorable
from perdure.values import codec


def print_of(value: Any) -> Any:
    """Everything that makes a value what it is, in a form that compares: NaN is NaN, 1 is not True, -0.0 not 0.0."""
    kind = type(value)
    if kind is float:
        return kind, struct.pack(">d", value)
    if kind is complex:
        return kind, struct.pack(">dd", value.real, value.imag)
    if kind in (list, tuple):
        return kind, [print_of(item) for item in value]
    if kind in (set, frozenset):
        return kind, sorted(repr(print_of(item)) for item in value)
    if kind in (dict, OrderedDict, Counter):
        return kind, [(print_of(key), print_of(item)) for key, item in value.items()]
    if kind is defaultdict:
        return kind, value.default_factory, print_of(dict(value))
    if kind is deque:
        return kind, value.maxlen, [print_of(item) for item in value]
    if kind is Decimal:
        return kind, value.as_tuple()
    if kind in (datetime, time):
        return kind, value.replace(tzinfo=None).isoformat(), value.fold, print_of(value.tzinfo)
    if kind is timezone:
        return kind, value.__getinitargs__()
    if kind is ZoneInfo:
        return kind, value.key
    if kind is range:
        return kind, (value.start, value.stop, value.step)
    if kind is numpy.ndarray:
        return kind, value.dtype.str, value.shape, value.tobytes(), value.flags.f_contiguous, value.flags.writeable
    if isinstance(value, numpy.generic):
        return kind, value.dtype.str, value.tobytes()
    return kind, value


def is_same(one: Any, other: Any) -> bool:
    return bool(print_of(one) == print_of(other))


zones = st.one_of(
    st.none(),
    st.just(UTC),
    st.builds(timezone, st.timedeltas(timedelta(hours=-23), timedelta(hours=23))),
    st.builds(timezone, st.timedeltas(timedelta(hours=-23), timedelta(hours=23)), st.text(max_size=5)),
    st.sampled_from(["Europe/Berlin", "America/Argentina/Buenos_Aires", "Etc/GMT+5", "UTC"]).map(ZoneInfo),
)
folds = st.sampled_from([0, 1])
datetimes = st.builds(lambda at, zone, fold: at.replace(tzinfo=zone, fold=fold), st.datetimes(), zones, folds)
times = st.builds(lambda at, zone, fold: at.replace(tzinfo=zone, fold=fold), st.times(), zones, folds)
texts = st.one_of(st.text(max_size=8), st.text(st.characters(exclude_categories=[]), max_size=8), st.just("\ud800"))
integers = st.one_of(st.integers(), st.integers(-(2**300), 2**300), st.sampled_from([2**63, 2**64, -(2**63) - 1]))
decimals = st.one_of(
    st.decimals(allow_nan=True, allow_infinity=True),
    st.sampled_from(["-0", "0E+7", "-NaN123", "1.10", "1E-999999", "-Infinity", "9E+999999999"]).map(Decimal),
)
paths = st.builds(
    lambda kind, text: kind(text),
    st.sampled_from([Path, PurePosixPath, PureWindowsPath]),
    texts,
)
keys = st.one_of(
    st.none(), st.booleans(), integers, st.floats(), st.complex_numbers(), texts, st.binary(max_size=8),
    datetimes, st.dates(), times, st.timedeltas(), st.uuids(), st.fractions(), paths,
    decimals.filter(lambda number: not number.is_snan()),
    st.builds(range, st.integers(), st.integers(), st.integers(1, 9)),
)  # fmt: skip


def _numpy_values(text: str, count: int, seed: bytes) -> numpy.ndarray[Any, Any]:
    dtype = numpy.dtype(text)
    return numpy.frombuffer((seed * 64)[: dtype.itemsize * count], dtype).copy()


dtypes = st.sampled_from(["|i1", "<i8", ">i4", "<u2", "<f2", ">f8", "<c8", "<c16", "<M8[ns]", "<m8[25s]", "|S3"])
flat_arrays = st.builds(_numpy_values, dtypes, st.integers(1, 12), st.binary(min_size=8, max_size=8))
arrays = st.one_of(
    flat_arrays,
    flat_arrays.map(lambda array: array.reshape(1, -1, 1)),
    st.builds(lambda text: numpy.array([text, "x"]), st.text(st.characters(codec="utf-8"), max_size=4)),
    st.just(numpy.zeros((2, 0, 3))),
    st.just(numpy.asfortranarray(numpy.arange(6.0).reshape(2, 3))),
    st.just(numpy.array(True)),
)
leaves = st.one_of(keys, decimals, st.binary(max_size=8).map(bytearray), zones, arrays, flat_arrays.map(lambda a: a[0]))
hashable = st.recursive(
    keys,
    lambda inner: st.one_of(st.lists(inner, max_size=3).map(tuple), st.frozensets(inner, max_size=3)),
    max_leaves=4,
)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(texts, inner, max_size=4),
        st.dictionaries(hashable, inner, max_size=4),
        st.sets(hashable, max_size=4),
        st.frozensets(hashable, max_size=4),
        st.builds(deque, st.lists(inner, max_size=4), st.sampled_from([None, 4, 9])),
        st.builds(OrderedDict, st.dictionaries(hashable, inner, max_size=4)),
        st.builds(Counter, st.dictionaries(texts, st.integers(), max_size=4)),
        st.builds(defaultdict, st.sampled_from([None, list, int, dict]), st.dictionaries(texts, inner, max_size=4)),
    ),
    max_leaves=12,
)
plain = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(), st.text(max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=20), st.dictionaries(st.text(max_size=4), inner, max_size=20)),
    max_leaves=40,
)


@given(values)
def test_every_value_comes_back_exactly(value: Any) -> None:
    data = codec.encode(value)
    assert is_same(codec.decode(data), value)
    assert codec.encode(codec.decode(data)) == data


def test_an_ordered_dict_keeps_its_own_order() -> None:
    moved = OrderedDict(a=1, b=2, c=3)
    moved.move_to_end("a")
    assert list(codec.decode(codec.encode(moved))) == ["b", "c", "a"]


def test_a_cycle_through_a_collection_is_named() -> None:
    ring: deque[Any] = deque()
    ring.append({"ring": ring})
    with pytest.raises(NotStorable, match="circular"):
        codec.encode(ring)
    table: defaultdict[str, Any] = defaultdict(dict)
    table["itself"] = table
    with pytest.raises(NotStorable, match="circular"):
        codec.encode(table)


@given(plain)
def test_plain_values_come_back_exactly(value: Any) -> None:
    assert is_same(codec.decode(codec.encode(value)), value)


@given(values)
def test_a_value_reads_the_same_wherever_it_is(value: Any) -> None:
    around = {"a": [(value, 1)], "b": {2: value}}
    assert is_same(codec.decode(codec.encode(around)), around)


@pytest.mark.parametrize(
    ("one", "other"), [(1, True), (1, 1.0), ((1,), [1]), ("a", b"a"), (0.0, -0.0), ({1}, frozenset({1}))]
)
def test_the_comparison_bites(one: Any, other: Any) -> None:
    assert not is_same(one, other)
    assert codec.encode(one) != codec.encode(other)


EXAMPLES = [
    *(sign * 2**power + change for power in (7, 31, 63, 64, 71, 1000) for change in (-1, 0, 1) for sign in (1, -1)),
    float("nan"), float("inf"), -0.0, 5e-324, struct.unpack(">d", bytes.fromhex("7ff8000000000123"))[0],
    complex(float("nan"), -0.0),
    "", "\0", "é", "\U0001f600", "\ud83d\ude00", "a\udcffb", b"", bytearray(), [], (), {}, set(), frozenset(),
    [[]], ((),), {"": {}}, {(): ()}, {None: None}, {1: 1, "1": 2}, {"\ud800": {"\udfff": "\ud800"}},
    {float("nan"), Decimal("NaN")},
    range(0), range(5, 1), range(-(2**80), 2**80, 7),
    datetime.min, datetime.max, datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),
    datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=-23, minutes=-59, seconds=-59, microseconds=-999999))),
    timezone(timedelta(0), "UTC"), UTC, ZoneInfo("UTC"), date.max, time.max, timedelta.min, timedelta.max,
    UUID(int=0), Decimal("sNaN7"), Decimal("1" * 500), Decimal("1E+999999999999999999"), Fraction(-7, 3), Fraction(0),
    Path(), Path("/a\udcff"), PurePosixPath("a\0b"), PureWindowsPath("C:/x/../y"), PureWindowsPath("//host/share/x"),
    numpy.float64("nan"), numpy.bool_(True), numpy.str_("a\0"), numpy.str_(""), numpy.bytes_(b"b\0"),
    numpy.datetime64("NaT"), numpy.array(["a\0b", ""]), numpy.arange(10)[::3], numpy.arange(6).reshape(2, 3).T,
    numpy.array([], dtype="<f4"), numpy.array(5), numpy.array([1, 2], ">i8"),
]  # fmt: skip


@pytest.mark.parametrize("value", EXAMPLES, ids=lambda value: type(value).__name__)
def test_the_odd_ones_come_back_too(value: Any) -> None:
    assert is_same(codec.decode(codec.encode(value)), numpy.array(value) if _is_view(value) else value)


def _is_view(value: Any) -> bool:
    """An array with gaps comes back without them."""
    return type(value) is numpy.ndarray and not (value.flags.c_contiguous or value.flags.f_contiguous)


def test_a_dict_keeps_its_order() -> None:
    for given_ in ({"b": 1, "a": 2}, {2: "b", 1: "a"}):
        assert list(codec.decode(codec.encode(given_)).items()) == list(given_.items())


def test_depth_up_to_the_limit_whatever_the_containers() -> None:
    for wrap in (lambda v: [v], lambda v: (v,), lambda v: {"k": v}, lambda v: {1: v}, lambda v: frozenset({v})):
        value: Any = 7
        for _ in range(100):
            value = wrap(value)
        assert codec.decode(codec.encode(value)) == value


def test_what_comes_back_shares_nothing() -> None:
    inner = [1]
    value = {"a": inner, "b": inner, "c": bytearray(b"x"), "d": numpy.arange(2), "t": (inner,)}
    back = codec.decode(codec.encode(value))
    back["a"].append(2)
    back["c"][0] = 0
    back["d"][0] = 9
    back["t"][0].append(3)
    assert inner == [1]
    assert back["b"] == [1]
    assert value["c"] == b"x"
    assert value["d"][0] == 0


def test_the_context_of_decimal_changes_nothing() -> None:
    value = Decimal("1E+40")
    usual = codec.encode(value)
    with decimal.localcontext(decimal.Context(prec=2, capitals=0, Emax=5, traps=[])):
        assert codec.encode(value) == usual
        assert codec.decode(usual).as_tuple() == value.as_tuple()


def test_a_zone_of_pydantic_comes_back() -> None:
    pydantic = pytest.importorskip("pydantic")
    value = pydantic.TypeAdapter(datetime).validate_python("2024-05-01T10:00:00+01:30")
    back = codec.decode(codec.encode([value, value.tzinfo]))
    assert back == [value, value.tzinfo]
    assert type(back[0].tzinfo) is type(back[1]) is type(value.tzinfo)


@given(st.one_of(st.sets(keys, max_size=6), st.frozensets(texts, max_size=6)))
def test_the_order_of_a_set_does_not_matter(value: Any) -> None:
    items = list(value)
    assert codec.digest(type(value)(reversed(items))) == codec.digest(value)


def test_the_digest_of_equal_dicts_is_equal_whatever_their_order() -> None:
    inner = {"x": 1, "y": (2, {"p": 1, "q": 2})}
    other = {"y": (2, {"q": 2, "p": 1}), "x": 1}
    assert codec.digest({"a": inner, "b": 2}) == codec.digest({"b": 2, "a": other})
    assert codec.digest({"a": 1}) != codec.digest({"a": 2})
    assert list(codec.decode(codec.encode({"b": 1, "a": 2}))) == ["b", "a"]
