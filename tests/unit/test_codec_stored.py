"""Registered types: every kind of class, versions and upcasters, and what happens when a class changed."""

from __future__ import annotations

import collections
import enum
import functools
from dataclasses import InitVar, dataclass, field
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import attrs
import msgspec
import pydantic
import pydantic_core
import pytest

from perdure.errors import NotStorable, UnknownType
from perdure.values import codec

CALLS: list[str] = []


@codec.stored("t-flight")
@dataclass
class Flight:
    number: str
    seats: tuple[int, ...]
    kind: ClassVar[str] = "jet"


@codec.stored("t-ticket")
@dataclass(frozen=True, slots=True)
class Ticket:
    flight: Flight
    price: float = 1.5


@codec.stored("t-counted")
@dataclass
class Counted:
    given: InitVar[int]
    total: int = field(init=False)

    def __post_init__(self, given: int) -> None:
        CALLS.append("dataclass")
        self.total = given + 1

    @functools.cached_property
    def doubled(self) -> int:
        return self.total * 2


@codec.stored("t-attrs")
@attrs.define(slots=True)
class Place:
    x: int = attrs.field(converter=int)
    _hidden: str = "h"


@codec.stored("t-attrs-frozen")
@attrs.frozen(slots=False, cache_hash=True)
class Spot:
    x: int


@codec.stored("t-attrs-slots-hash")
@attrs.frozen(cache_hash=True)
class SlotSpot:
    x: int


@codec.stored("t-model")
class Trip(pydantic.BaseModel):
    to: str = pydantic.Field(alias="destination")
    days: int = 3
    flights: list[Flight] = []
    _secret: int = pydantic.PrivateAttr(7)

    @pydantic.field_validator("to")
    @classmethod
    def shout(cls, value: str) -> str:
        CALLS.append("pydantic")
        return value + "!"


@codec.stored("t-open-model")
class Open(pydantic.BaseModel, extra="allow"):
    a: int = 1


@codec.stored("t-root-model")
class Root(pydantic.RootModel[list[int]]):
    pass


@codec.stored("t-struct")
class Bag(msgspec.Struct, frozen=True, kw_only=True):
    items: list[Any]
    owner: str | None = None
    note: str | msgspec.UnsetType = msgspec.UNSET


@codec.stored("t-named")
class Point(NamedTuple):
    x: int
    y: Any = 0


Pair = codec.stored("t-pair")(collections.namedtuple("Pair", "a b"))


@codec.stored("t-colour")
class Colour(enum.Enum):
    RED = (1, 2)
    GREEN = object()
    CRIMSON = (1, 2)  # noqa: PIE796 - an alias


@codec.stored("t-level")
class Level(enum.IntEnum):
    LOW = 1


@codec.stored("t-word")
class Word(enum.StrEnum):
    HELLO = "hello"


@codec.stored("t-rights")
class Rights(enum.Flag):
    READ = 1
    WRITE = 2


@codec.stored("t-money")
class Money:
    def __init__(self, cents: int) -> None:
        self.cents = cents

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Money) and self.cents == other.cents

    def __hash__(self) -> int:
        return hash(self.cents)

    def __perdure_store__(self) -> dict[str, Any]:
        return {"cents": self.cents, "\ud800": 1}

    @classmethod
    def __perdure_load__(cls, fields: dict[str, Any]) -> Money:
        return cls(fields["cents"])


@codec.stored("t-dict")
class Settings(dict[str, int]):
    def __perdure_store__(self) -> dict[str, Any]:
        return {"items": list(self.items())}

    @classmethod
    def __perdure_load__(cls, fields: dict[str, Any]) -> Settings:
        return cls(fields["items"])


T = TypeVar("T")


@codec.stored("t-box")
@dataclass
class Box(Generic[T]):
    content: T


OBJECTS = [
    Flight("LH1", (1, 2)), Ticket(Flight("LH1", ())), Counted(4), Place("5"), Spot(1), SlotSpot(1),
    Trip(destination="NYC"), Trip(destination="NYC", days=3, flights=[Flight("a", ())]), Open(a=2, b=(1,)), Root([1]),
    Bag(items=[{1}], owner="o"), Bag(items=[], note="n"), Point(1), Point(1, Point(2, (3,))), Pair(1, [2]),
    Colour.RED, Colour.GREEN, Colour.CRIMSON, Level.LOW, Word.HELLO, Rights.READ, Rights.READ | Rights.WRITE, Rights(0),
    Money(5), Settings(a=1), Box(Box({1: 2})),
]  # fmt: skip


@pytest.mark.parametrize("value", OBJECTS, ids=lambda value: type(value).__name__)
def test_every_kind_comes_back_as_itself(value: Any) -> None:
    for around in (value, [value], {"k": (value,)}, {1: value}):
        back = codec.decode(codec.encode(around))
        assert back == around
        assert type(back) is type(around)
    back = codec.decode(codec.encode(value))
    if isinstance(value, enum.Enum):
        assert back is value


def test_registered_objects_as_keys() -> None:
    value = {Point(1): 1, Money(2): 2, Word.HELLO: 3, Spot(1): 4, SlotSpot(2): 5}
    assert codec.decode(codec.encode(value)) == value
    assert codec.decode(codec.encode(set(value))) == set(value)


def test_no_init_no_post_init_no_validator_is_called_again() -> None:
    counted, trip = Counted(1), Trip(destination="NYC")
    counted.total = 9
    assert counted.doubled == 18
    data = codec.encode([counted, trip])
    CALLS.clear()
    back = codec.decode(data)
    assert CALLS == []
    assert back[0].total == 9
    assert back[1].to == "NYC!"


def test_pydantic_keeps_what_was_set_and_what_is_private() -> None:
    trip = Trip(destination="NYC")
    trip._secret = 8
    back = codec.decode(codec.encode(trip))
    assert back._secret == 8
    assert back.model_fields_set == {"to"}
    assert back.model_dump(exclude_unset=True) == {"to": "NYC!"}
    back.days = "still a model"
    open_back = codec.decode(codec.encode(Open(b=2)))
    assert open_back.model_extra == {"b": 2}
    assert open_back.model_fields_set == {"b"}
    assert codec.decode(codec.encode(Root([1]))).root == [1]


def test_an_attribute_that_is_no_field_is_not_lost_in_silence() -> None:
    flight = Flight("LH1", ())
    flight.extra = 1  # type: ignore[attr-defined]
    with pytest.raises(NotStorable, match=r"^input\[0\]: the attribute 'extra' is not a field of .*Flight"):
        codec.encode([flight], "input")


def test_a_field_without_a_value() -> None:
    counted = Counted(1)
    del counted.total
    with pytest.raises(NotStorable, match=r"'total' of .* has no value yet"):
        codec.encode(counted)


def test_the_path_goes_through_objects() -> None:
    for value, path in (
        (Ticket(Flight("a", (1, object()))), "input.flight.seats[1]"),  # type: ignore[arg-type]
        (Box({"k": Point(1, [object()])}), "input.content.k.y[0]"),
        (Open(b=object()), "input.b"),
    ):
        with pytest.raises(NotStorable) as caught:
            codec.encode(value, "input")
        assert str(caught.value).startswith(f"{path}: object cannot be stored")


def test_a_private_attribute_that_cannot_be_stored_has_a_path_too() -> None:
    trip = Trip(destination="x")
    trip._secret = object()  # type: ignore[assignment]
    with pytest.raises(NotStorable, match=r"^input\.private\._secret: object cannot be stored"):
        codec.encode(trip, "input")


def test_a_circle_through_an_object() -> None:
    box: Box[Any] = Box([])
    box.content.append(box)
    with pytest.raises(NotStorable, match=r"^input\.content\[0\]: refers back to input;"):
        codec.encode(box, "input")


def test_an_unknown_name() -> None:
    data = codec.encode(Flight("a", ())).replace(b"t-flight", b"t-xxxxxx")
    with pytest.raises(UnknownType, match="no class with the stored name 't-xxxxxx' is known here"):
        codec.decode(data)


class Undecorated(Flight):
    pass


@pytest.mark.parametrize(
    ("cls", "complaint"),
    [
        (type("Bare", (), {}), "has no fields that Perdure can store .*above @dataclass"),
        (Undecorated, "has no fields"),
        (dataclass(type("ListData", (list,), {"__annotations__": {}})), "cannot be rebuilt"),
        (ValueError, "as it is"),
        (Box[int], "is for classes"),
        (pydantic_core.SchemaError, "cannot be rebuilt"),
    ],
)
def test_classes_that_cannot_be_registered(cls: Any, complaint: str) -> None:
    with pytest.raises(NotStorable, match=complaint):
        codec.stored("t-impossible")(cls)
    codec.stored("t-impossible")  # the name is still free


@pytest.mark.parametrize(
    ("name", "version"), [("", 1), ("x" * 513, 1), (1, 1), ("t-v", 0), ("t-v", True), ("t-v", "1")]
)
def test_names_and_versions_are_checked(name: Any, version: Any) -> None:
    with pytest.raises(NotStorable):
        codec.stored(name, version)
    with pytest.raises(NotStorable):
        codec.upcaster(name, version)


@codec.stored("t-hooks-raise")
class Raising:
    def __perdure_store__(self) -> dict[str, Any]:
        raise OverflowError("no")

    @classmethod
    def __perdure_load__(cls, fields: dict[str, Any]) -> Any:
        raise AssertionError


@codec.stored("t-hooks-odd")
class Odd:
    given: Any = {}  # noqa: RUF012 - never changed in place

    def __perdure_store__(self) -> dict[str, Any]:
        return self.given  # type: ignore[no-any-return]

    @classmethod
    def __perdure_load__(cls, fields: dict[str, Any]) -> Any:
        if fields:
            raise KeyError("odd")
        return 1


def test_hooks_that_misbehave() -> None:
    with pytest.raises(NotStorable, match=r"^v\[0\]: .*Raising could not be split into fields: OverflowError: no"):
        codec.encode([Raising()], "v")
    odd = Odd()
    with pytest.raises(UnknownType, match="decodes to int, not"):
        codec.decode(codec.encode(odd))
    odd.given = {"a": 1}
    with pytest.raises(UnknownType, match="could not be rebuilt: KeyError"):
        codec.decode(codec.encode(odd))
    for given in ({1: 2}, [1], None):
        odd.given = given
        with pytest.raises(NotStorable, match="must return a dict"):
            codec.encode(odd)
