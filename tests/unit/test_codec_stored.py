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
import pytest

from perdure import codec
from perdure.errors import NotStorable, UnknownType

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


@pytest.mark.parametrize("value", OBJECTS, ids=lambda value: repr(value)[:40])
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
    with pytest.raises(NotStorable, match=r"^input\[0\]: the attribute 'extra' is no field of .*Flight"):
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


def test_upcasters_chain() -> None:
    old = codec.stored("t-up", 1)(_class("Up", "a"))
    data = codec.encode([old(5)])
    codec.stored("t-up", 2)(_class("Up", "a b"))

    @codec.upcaster("t-up", from_version=1)
    def add_b(fields: dict[str, Any]) -> dict[str, Any]:
        return {**fields, "b": fields["a"] + 1}

    (back,) = codec.decode(data)
    assert (back.a, back.b) == (5, 6)
    newest = codec.stored("t-up", 3)(_class("Up", "c"))

    @codec.upcaster("t-up", from_version=2)
    def join(fields: dict[str, Any]) -> dict[str, Any]:
        return {"c": (fields.pop("a"), fields.pop("b"))}

    (back,) = codec.decode(data)
    assert type(back) is newest
    assert back.c == (5, 6)


def _class(name: str, fields: str) -> Any:
    """A dataclass, made anew each time, as when a module is edited and reloaded."""
    body = {"__annotations__": dict.fromkeys(fields.split(), Any), "__module__": __name__, "__qualname__": name}
    return dataclass(type(name, (), body))


def test_a_gap_between_versions_is_named() -> None:
    data = codec.encode(codec.stored("t-gap", 1)(_class("Gap", "a"))(1))
    codec.stored("t-gap", 4)(_class("Gap", "a"))
    codec.upcaster("t-gap", 1)(lambda fields: fields)
    with pytest.raises(UnknownType, match=r"version 1, and is now version 4 .*from version 2 to 3: .*\"t-gap\", 2\)"):
        codec.decode(data)


def test_data_newer_than_the_code() -> None:
    data = codec.encode(codec.stored("t-newer", 7)(_class("Newer", "a"))(1))
    codec.stored("t-newer", 6)(_class("Newer", "a"))
    with pytest.raises(UnknownType, match=r"version 7; this process knows version 6 \(upgrade"):
        codec.decode(data)


def test_an_upcaster_that_raises_is_named() -> None:
    data = codec.encode(codec.stored("t-bad-up", 1)(_class("BadUp", "a"))(1))
    codec.stored("t-bad-up", 2)(_class("BadUp", "a"))
    codec.upcaster("t-bad-up", 1)(lambda fields: {"a": fields["nothing"]})
    with pytest.raises(UnknownType, match="upcaster of 't-bad-up' from version 1 raised KeyError") as caught:
        codec.decode(data)
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_changed_class_without_a_new_version_is_told_by_field() -> None:
    data = codec.encode(codec.stored("t-changed")(_class("Changed", "a b"))(1, 2))
    codec.stored("t-changed")(_class("Changed", "a"))
    with pytest.raises(UnknownType, match=r"stored with 'b', which .*Changed does not have .*upcaster"):
        codec.decode(data)
    codec.stored("t-changed")(_class("Changed", "a b c"))
    with pytest.raises(UnknownType, match=r"stored without 'c', which .*Changed needs"):
        codec.decode(data)
    with_default = _class("Changed", "a b")
    with_default = dataclass(
        type("Changed", (with_default,), {"c": field(default_factory=list), "__annotations__": {"c": list},
                                          "__module__": __name__, "__qualname__": "Changed"})
    )  # fmt: skip
    codec.stored("t-changed")(with_default)
    assert codec.decode(data).c == []


def _attrs_version(fields: dict[str, Any]) -> Any:
    made = attrs.make_class("GrownAttrs", fields)
    made.__module__, made.__qualname__ = __name__, "GrownAttrs"
    return made


def test_defaults_fill_in_for_every_kind() -> None:
    old = codec.stored("t-grown-attrs")(_attrs_version({"a": attrs.field()}))
    data = codec.encode(old(1))
    codec.stored("t-grown-attrs")(_attrs_version({"a": attrs.field(), "b": attrs.field(factory=dict)}))
    assert codec.decode(data).b == {}
    codec.stored("t-grown-attrs")(_attrs_version({"a": attrs.field(), "b": attrs.field()}))
    with pytest.raises(UnknownType, match="without 'b'"):
        codec.decode(data)

    bag = msgspec.defstruct("GrownBag", ["a"], module=__name__)
    data = codec.encode(codec.stored("t-grown-bag")(bag)(1))
    codec.stored("t-grown-bag")(msgspec.defstruct("GrownBag", ["a", ("b", int, 5)], module=__name__))
    assert codec.decode(data).b == 5

    point = collections.namedtuple("GrownPoint", "a")
    data = codec.encode(codec.stored("t-grown-point")(point)(1))
    grown = collections.namedtuple("GrownPoint", "a b", defaults=[6])
    codec.stored("t-grown-point")(grown)
    assert codec.decode(data) == (1, 6)

    model = pydantic.create_model("GrownModel", __module__=__name__, a=(int, ...))
    data = codec.encode(codec.stored("t-grown-model")(model)(a=1))
    codec.stored("t-grown-model")(pydantic.create_model("GrownModel", __module__=__name__, a=(int, ...), b=(int, 7)))
    assert codec.decode(data).b == 7


def test_a_renamed_member_of_an_enum() -> None:
    def made(members: str) -> Any:
        return enum.Enum("Renamed", members, module=__name__, qualname="Renamed")

    data = codec.encode(codec.stored("t-renamed")(made("OLD OTHER")).OLD)
    newer = codec.stored("t-renamed", 2)(made("NEW OTHER"))
    codec.upcaster("t-renamed", 1)(lambda fields: {"name": "NEW" if fields["name"] == "OLD" else fields["name"]})
    assert codec.decode(data) is newer.NEW
    codec.stored("t-renamed", 1)(made("NEW OTHER"))
    with pytest.raises(UnknownType, match="no member 'OLD'"):
        codec.decode(data)


def test_an_unknown_name() -> None:
    data = codec.encode(Flight("a", ())).replace(b"t-flight", b"t-xxxxxx")
    with pytest.raises(UnknownType, match="nothing is registered here under the stored name 't-xxxxxx'"):
        codec.decode(data)


def test_one_name_is_for_one_class() -> None:
    codec.stored("t-twice")(_class("One", "a"))
    with pytest.raises(NotStorable, match=r"'t-twice' is the name of .*One, and now of .*Other"):
        codec.stored("t-twice")(_class("Other", "a"))
    cls = codec.stored("t-two-names")(_class("TwoNames", "a"))
    with pytest.raises(NotStorable, match="is registered as 't-two-names', and now as 't-second'"):
        codec.stored("t-second")(cls)
    codec.upcaster("t-twice", 1)(_class)
    with pytest.raises(NotStorable, match="two upcasters from version 1"):
        codec.upcaster("t-twice", 1)(_attrs_version)


def test_a_reloaded_class_takes_over_and_old_objects_still_go() -> None:
    old = codec.stored("t-reload")(_class("Reload", "a"))
    new = codec.stored("t-reload")(_class("Reload", "a"))
    assert type(codec.decode(codec.encode(old(1)))) is new


class Undecorated(Flight):
    pass


@pytest.mark.parametrize(
    ("cls", "complaint"),
    [
        (type("Bare", (), {}), "has no fields that Perdure knows of .*above @dataclass"),
        (Undecorated, "has no fields"),
        (dataclass(type("ListData", (list,), {"__annotations__": {}})), "cannot be put together"),
        (ValueError, "as it is"),
        (Box[int], "is for classes"),
        (pydantic.ValidationError, "cannot be rebuilt"),
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
    with pytest.raises(NotStorable, match=r"^v\[0\]: .*Raising could not be taken apart: OverflowError: no"):
        codec.encode([Raising()], "v")
    odd = Odd()
    with pytest.raises(UnknownType, match="gives int and no"):
        codec.decode(codec.encode(odd))
    odd.given = {"a": 1}
    with pytest.raises(UnknownType, match="could not be put together: KeyError"):
        codec.decode(codec.encode(odd))
    for given in ({1: 2}, [1], None):
        odd.given = given
        with pytest.raises(NotStorable, match="must return a dict"):
            codec.encode(odd)
