"""The format never changes by accident: fixed values and their bytes.

When one of these fails, stores that people have cannot be read any more. Do not update the bytes: bring the format
back, or give the new form a new tag and go on reading the old one.
"""

from __future__ import annotations

import enum
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from ipaddress import IPv4Address
from pathlib import PosixPath, PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs
import msgspec
import numpy
import pydantic
import pytest

from perdure import errors
from perdure.values import codec
from perdure.values.codec.tags import ExtensionTag


@codec.stored("s-flight", version=3)
@dataclass
class Flight:
    number: str
    price: Any = None


@codec.stored("s-place")
@attrs.define
class Place:
    x: int


@codec.stored("s-trip")
class Trip(pydantic.BaseModel):
    to: str
    days: int = 3
    _note: str = pydantic.PrivateAttr("n")


@codec.stored("s-bag")
class Bag(msgspec.Struct):
    items: list[int]


@codec.stored("s-point")
class Point(NamedTuple):
    x: int
    y: int


@codec.stored("s-colour")
class Colour(enum.Enum):
    RED = 1


@codec.stored("s-rights")
class Rights(enum.Flag):
    READ = 1
    WRITE = 2


@codec.stored("s-error", version=2)
class Failure(Exception):
    pass


class Unregistered(Exception):
    __module__ = "app"


def _make_noted() -> ValueError:
    error = ValueError("x")
    error.add_note("n")
    return error


TABLE: list[tuple[Any, str]] = [
    (None, "c0"),
    (True, "c3"),
    (0, "00"),
    (-33, "d0df"),
    (2**64 - 1, "cfffffffffffffffff"),
    (2**64, "c70901010000000000000000"),
    (-(2**63) - 1, "c70901ff7fffffffffffffff"),
    (1.5, "cb3ff8000000000000"),
    (-0.0, "cb8000000000000000"),
    (float("inf"), "cb7ff0000000000000"),
    ("aé", "a361c3a9"),
    ("\ud800", "c70302eda080"),
    (b"ab", "d5036162"),
    (bytearray(b"ab"), "d5046162"),
    (1 - 2j, "d8053ff0000000000000c000000000000000"),
    (range(1, 300, 2), "c70b0693c40101c402012cc40102"),
    ([1, [2]], "92019102"),
    ((1, (2,)), "93c700280192c7002802"),
    ((), "91c70028"),
    ({"a": 1, "b": {}}, "82a16101a16280"),
    ({2: "b", 1: "a"}, "95c7002b02a16201a161"),
    ({"\udc80": 1}, "93c7002bc70302edb28001"),
    ({3, 1, "a"}, "94c700290103a161"),
    (frozenset({(1, 2)}), "92c7002a93c700280102"),
    (deque([1, (2,)], 3), "94c7002ea5646571756503920192c7002802"),
    (deque(), "94c7002ea56465717565c090"),
    (OrderedDict(b=1, a=2), "94c7002eab4f72646572656444696374c082a16201a16102"),
    (Counter({1: 2}), "94c7002ea7436f756e746572c093c7002b0102"),
    (defaultdict(list, a=[1]), "94c7002eab64656661756c7464696374a46c69737481a1619101"),
    (defaultdict(None, a=1), "94c7002eab64656661756c7464696374c081a16101"),
    (datetime(2024, 2, 29, 1, 2, 3, 4), "c70c0a99cd07e8021d0102030400c0"),
    (
        datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),
        "c71c0a99cd07e80a1b021e000001930200ad4575726f70652f4265726c696e",
    ),
    (datetime(2024, 1, 1, tzinfo=UTC), "c70f0a99cd07e801010000000000930000a0"),
    (time(1, 2, 3, 4, tzinfo=timezone(timedelta(hours=1), "CET")), "c7110c9601020304009301ced693a400a3434554"),
    (date(2024, 2, 29), "c7060b93cd07e8021d"),
    (timedelta(-1, 2, 3), "d60d93ff0203"),
    (timezone(timedelta(hours=-5)), "c70c0e9300d3fffffffbcf1dcc00a0"),
    (ZoneInfo("Europe/Berlin"), "c7110e930200ad4575726f70652f4265726c696e"),
    (UUID(int=7), "d81000000000000000000000000000000007"),
    (Decimal("-1.50E+7"), "d7112d312e3530452b37"),
    (Decimal("sNaN12"), "c70611734e614e3132"),
    (Fraction(-1, 3), "c7071292c401ffc40103"),
    (PosixPath("/a/b"), "c70513012f612f62"),
    (PurePosixPath("a"), "d5130361"),
    (PureWindowsPath("c:/x"), "c7051304633a5c78"),
    (IPv4Address("1.2.3.4"), "d71401312e322e332e34"),
    (numpy.array([[1, 2], [3, 4]], "<i2"), "c7141894a33c6932920202a143c4080100020003000400"),
    (numpy.asfortranarray(numpy.array([[1, 2], [3, 4]], "<i2")), "c7141894a33c6932920202a146c4080100030002000400"),
    (numpy.float32(1.5), "c70b1992a33c6634c4040000c03f"),
    (numpy.str_("a"), "c7061992a155c40161"),
    (Flight("LH1", Decimal(5)), "94c7002ca8732d666c696768740382a66e756d626572a34c4831a57072696365d41135"),
    (Place(1), "94c7002ca7732d706c6163650181a17801"),
    (
        Trip(to="NYC"),
        (
            "95c7002ca6732d747269700182a2746fa34e5943a4646179730382a5756e73657492c7002aa464617973a770726976617465"
            "81a55f6e6f7465a16e"
        ),
    ),
    (Bag([1]), "94c7002ca5732d6261670181a56974656d739101"),
    (Point(1, 2), "94c7002ca7732d706f696e740182a17801a17902"),
    (Colour.RED, "94c7002ca8732d636f6c6f75720181a46e616d65a3524544"),
    (Rights.READ | Rights.WRITE, "94c7002ca8732d7269676874730181a576616c756503"),
    (KeyError("k"), "96c7002da84b65794572726f7200a3276b2791a16b80"),
    (
        FileNotFoundError(2, "gone", "a.txt"),
        (
            "96c7002db146696c654e6f74466f756e644572726f7200b75b4572726e6f20325d20676f6e653a2027612e747874279202a4"
            "676f6e6583a56572726e6f02a87374726572726f72a4676f6e65a866696c656e616d65a5612e747874"
        ),
    ),
    (
        ExceptionGroup("g", [ValueError(1)]),
        (
            "96c7002dae457863657074696f6e47726f757000b367202831207375622d657863657074696f6e2992a1679196c7002daa56"
            "616c75654572726f7200a13191018080"
        ),
    ),
    (errors.NotDone("no"), "96c7002daf706572647572652e4e6f74446f6e6500a26e6f91a26e6f80"),
    (Failure("f", 1), "96c7002da7732d6572726f7202a8282766272c20312992a1660180"),
    (Unregistered("u"), "96c7002db06170703a556e7265676973746572656401a17591a17580"),
    (KeyboardInterrupt(), "96c7002dba6275696c74696e733a4b6579626f617264496e74657272757074ffa09080"),
    (_make_noted(), "96c7002daa56616c75654572726f7200a17891a17881a95f5f6e6f7465735f5f91a16e"),
]


@pytest.mark.parametrize(
    ("value", "expected"), TABLE, ids=[f"{type(value).__name__}-{stored[:24]}" for value, stored in TABLE]
)
def test_the_bytes_of_a_value_are_forever(value: Any, expected: str) -> None:
    assert codec.encode(value).hex() == expected


@pytest.mark.parametrize(
    ("value", "stored"), TABLE, ids=[f"{type(value).__name__}-{stored[:24]}" for value, stored in TABLE]
)
def test_old_bytes_are_read(value: Any, stored: str) -> None:
    back = codec.decode(bytes.fromhex(stored))
    if isinstance(value, Unregistered | KeyboardInterrupt):
        assert type(back) is errors.StepFailed
        assert back.type_name == f"{type(value).__module__}.{type(value).__qualname__}"
    else:
        assert type(back) is type(value)
        assert codec.encode(back).hex() == stored


def test_every_tag_is_in_the_table() -> None:
    """A new tag needs its line here."""
    marks = {tag: f"c700{int(tag):02x}" for tag in ExtensionTag if tag >= ExtensionTag.TUPLE}
    heads = [stored for _, stored in TABLE]
    for tag in ExtensionTag:
        if tag in marks:
            assert any(marks[tag] in head for head in heads), tag
        else:
            assert any(_tag_of(head) == tag for head in heads), tag


def _tag_of(stored: str) -> int | None:
    """The tag of an extension at the front: fixext 1 to 16 have it in the second byte, ext 8 in the third."""
    data = bytes.fromhex(stored)
    if 0xD4 <= data[0] <= 0xD8:
        return data[1]
    return data[2] if data[0] == 0xC7 else None
