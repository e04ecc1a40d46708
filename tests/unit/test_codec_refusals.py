"""What cannot be stored is refused at the call, with the path to it and what to do."""

from __future__ import annotations

import asyncio
import collections
import enum
import re
import threading
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import numpy
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import NotStorable, ValueTooLarge
from perdure.values import codec, limits
from perdure.values.codec.encoder import COLLISIONS_MAX
from perdure.values.codec.leaves import FRACTION_BITS_MAX


class Plain:
    pass


@dataclass
class Data:
    x: int = 1

    def __setattr__(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)


class Colour(enum.Enum):
    RED = 1


class MyDict(dict[str, int]):
    pass


class MyList(list[int]):
    pass


class MyInt(int):
    pass


class MyStr(str):
    pass


class MyFloat(float):
    pass


class MyBytes(bytes):
    pass


class MyTuple(tuple[int, ...]):
    pass


class MySet(set[int]):
    pass


class MyWhen(datetime):
    pass


class MyDecimal(Decimal):
    pass


class MyPath(PurePosixPath):
    pass


class MyUuid(UUID):
    pass


class MyFloat64(numpy.float64):
    pass


def check_refused(value: Any, path: str = "input", error: type[Exception] = NotStorable) -> str:
    with pytest.raises(error) as caught:
        codec.encode(value, path)
    assert type(caught.value) is error
    return str(caught.value)


UNREGISTERED = [
    Data(), MyDict(), MyList(), MyInt(1), MyStr("a"), MyFloat(1), MyBytes(b""), MyTuple(), MySet(),
    MyWhen(2024, 1, 1), MyDecimal(1), MyPath(), MyUuid(int=1), MyFloat64(1), Plain(),
]  # fmt: skip


@pytest.mark.parametrize("value", UNREGISTERED, ids=lambda value: type(value).__name__)
def test_what_is_not_registered_is_refused_with_the_way_out(value: Any) -> None:
    for where in (value, [value], (value,), {"k": value}, {1: value}):
        message = check_refused(where)
        assert type(value).__name__ in message
        assert re.search(r'register it with @perdure\.stored\("[a-z0-9-]+"\)', message), message


def test_a_suggested_name_is_the_name_of_the_class() -> None:
    assert 'stored("my-dict")' in check_refused(MyDict())
    assert "__perdure_store__" in check_refused(MyDict())
    assert "__perdure_store__" not in check_refused(Data())


def test_subclasses_are_refused_as_keys_and_elements_too() -> None:
    assert check_refused({MyStr("a"): 1}).startswith("input.keys()[0]: ")
    assert check_refused({MyStr("k"): 1, **{str(n): n for n in range(40)}}).startswith("input.keys()[0]: ")
    assert check_refused({MyStr("a")}).startswith("input{*}: ")
    assert check_refused([1.5] * 40 + [MyFloat(1)]).startswith("input[40]: ")
    assert check_refused([True] * 40 + [MyInt(1)]).startswith("input[40]: ")


def _generator() -> Any:
    yield 1


async def _coroutine() -> None:
    pass


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        (lambda: 1, "call the function"),
        (len, "call the function"),
        ([].append, "call the function"),
        (_generator(), "convert it to a list"),
        (threading.Lock(), "belongs to this process"),
        (threading.Thread(), "belongs to this process"),
        (re, "not code"),
        (Plain, "not code"),
        (Colour, "not code"),
        (collections.defaultdict(lambda: 0), "convert it to a dict"),
        (collections.defaultdict(Plain), "use one of bool, dict, float, int, list"),
        (collections.ChainMap(), "convert it to a dict"),
        (memoryview(b""), "convert it to bytes"),
        ({}.keys(), "convert it to a list"),
        (SimpleNamespace(), "dataclass"),
        (object(), "register it"),
        (..., "None"),
        (re.compile("a"), "value.pattern"),
        (pydantic.SecretStr("key"), "not encrypted"),
    ],
)
def test_each_refusal_says_what_to_do(value: Any, advice: str) -> None:
    assert advice in check_refused(value)


def test_handles_and_coroutines(tmp_path: Any) -> None:
    with (tmp_path / "f").open("w") as file:
        assert "open it again" in check_refused({"f": file})
    coroutine = _coroutine()
    assert "await" in check_refused(coroutine)
    coroutine.close()
    loop = asyncio.new_event_loop()
    assert "belongs to this process" in check_refused(loop.create_future())
    loop.close()


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"flights": [0, 1, 2, {"seat": Plain()}]}, "input.flights[3].seat"),
        ((1, {"a b": Plain()}), "input[1]['a b']"),
        ({1: {None: {(1, 2): [Plain()]}}}, "input[1][None][<tuple>][0]"),
        ({"x" * 100: Plain()}, f"input['{'x' * 39}…']"),
        ({(1, Plain()): 2}, "input.keys()[0][1]"),
        ([{1, 2}, {frozenset({Plain()})}], "input[1]{*}{*}"),
        ({"\ud800": [2**70, Plain()]}, r"input['\ud800'][1]"),
        ({2**200: Plain()}, "input[<int>]"),
    ],
)
def test_the_path_leads_to_the_value(value: Any, path: str) -> None:
    assert check_refused(value).startswith(f"{path}: tests.unit.test_codec_refusals.Plain cannot be stored (")


@given(st.lists(st.one_of(st.integers(0, 20), st.from_regex(r"[a-z]{1,8}", fullmatch=True)), max_size=30))
def test_any_path_is_found(steps: list[int | str]) -> None:
    value: Any = Plain()
    for step in reversed(steps):
        value = {step: value} if isinstance(step, str) else [None] * step + [value]
    expected = [f".{step}" if isinstance(step, str) else f"[{step}]" for step in steps]
    shown = "".join(expected) if len(expected) <= 24 else "".join(expected[:24]) + "…"
    assert check_refused(value, "root").startswith(f"root{shown}: ")


def test_circles_are_named_from_end_to_start() -> None:
    value: dict[str, Any] = {"a": [1, ({},)]}
    value["a"][1][0]["back"] = value["a"]
    assert check_refused(value) == "input.a[1][0].back: refers back to input.a; a circular reference cannot be stored"
    lone: list[Any] = []
    lone.append(lone)
    assert check_refused(lone).startswith("input[0]: refers back to input; ")


def test_too_deep_is_no_circle() -> None:
    for wrap in (lambda v: [v], lambda v: (v,), lambda v: {"k": v}, lambda v: {1: v}, lambda v: frozenset({v})):
        value: Any = 7
        for _ in range(101):
            value = wrap(value)
        assert "nested more than 100 deep" in check_refused(value, error=ValueTooLarge)


def test_one_list_in_itself_many_times_over_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "VALUE_BYTES_MAX", 100_000)
    for wrap in (lambda v: [v, v], lambda v: (v, v), lambda v: {"a": v, "b": v}):
        value: Any = wrap(1)
        for _ in range(60):
            value = wrap(value)
        assert "more than 100000 elements" in check_refused(value, error=ValueTooLarge)


def test_what_occurs_twice_is_no_circle() -> None:
    inner = [1]
    assert codec.decode(codec.encode([inner, (inner, {"k": inner})])) == [[1], ([1], {"k": [1]})]


def test_size_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "VALUE_BYTES_MAX", 1000)
    assert codec.encode("x" * 997)
    for value in ("x" * 998, ["x" * 998], ("x" * 998,), b"x" * 998, {"a": "x" * 500, "b": "\ud800" * 300}):
        assert "larger than 1000 bytes" in check_refused(value, error=ValueTooLarge)


def test_integers_have_a_limit() -> None:
    top = 2**limits.INTEGER_BITS_MAX
    assert codec.decode(codec.encode([top - 1, 1 - top])) == [top - 1, 1 - top]
    assert check_refused({"n": [top]}, error=ValueTooLarge).startswith("input.n[0]: an integer of more than ")
    assert check_refused(range(top), error=ValueTooLarge)
    assert codec.decode(codec.encode(Fraction(1, 2**FRACTION_BITS_MAX - 1)))
    assert check_refused(Fraction(1, 2**FRACTION_BITS_MAX), error=ValueTooLarge)


def test_a_dict_that_would_be_quadratic_is_refused() -> None:
    modulus = 2**61 - 1  # of the hash of numbers
    few = {number * modulus for number in range(COLLISIONS_MAX + 1)}
    many = {number * modulus for number in range(COLLISIONS_MAX + 2)}
    assert codec.decode(codec.encode(few)) == few
    for value in (many, frozenset(many), dict.fromkeys(many)):
        assert "share a hash" in check_refused(value, error=ValueTooLarge)


class OddZone(tzinfo):
    def utcoffset(self, _: datetime | None) -> timedelta:
        return timedelta(0)


def test_zones_of_others_are_refused() -> None:
    assert "use zoneinfo.ZoneInfo" in check_refused({"at": datetime(2024, 1, 1, tzinfo=OddZone())})


@pytest.mark.parametrize(
    "value",
    [
        numpy.array([object()]),
        numpy.array([1], dtype=[("a", "i4")]),
        numpy.longdouble(1),
        numpy.array([1], dtype=numpy.longdouble),
        numpy.void(b"ab"),
        numpy.longlong(1),
        numpy.zeros((1,) * 40),
        numpy.ma.array([1]),
        numpy.dtype("i4"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_numpy_values_that_would_not_be_exact(value: Any) -> None:
    assert check_refused([value]).startswith("input[0]")


def test_an_unregistered_object_deep_in_a_large_plain_value() -> None:
    value = {"rows": [{"id": n, "tags": ["a", "b"]} for n in range(1000)]}
    value["rows"][777]["tags"].append(Plain())  # type: ignore[attr-defined]
    assert check_refused(value).startswith("input.rows[777].tags[2]: ")
