"""Plain data classes are stored under their name without `@stored`, and come back as that class in every process."""

from __future__ import annotations

import collections
import enum
import functools
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypedDict, TypeVar

import attrs
import msgspec
import pydantic
import pydantic.dataclasses
import pytest
import typing_extensions

from perdure.errors import NotStorable, UnknownType
from perdure.values import codec
from perdure.values.codec import registry
from perdure.values.codec.decoder import decode_as_dicts

Element = TypeVar("Element")
CALLS: list[str] = []


@dataclass
class Flight:
    number: str
    seats: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        CALLS.append("dataclass")

    @functools.cached_property
    def first(self) -> int:
        return self.seats[0]

    @dataclass(frozen=True, slots=True)
    class Leg:
        to: str
        price: float = 1.5


@attrs.define
class Seat:
    row: int = attrs.field(converter=int, validator=lambda *_: CALLS.append("attrs"))


@attrs.frozen(cache_hash=True)
class Gate:
    name: str


class Trip(pydantic.BaseModel):
    flights: list[Flight]
    note: str | None = None
    _seen: int = pydantic.PrivateAttr(0)

    @pydantic.field_validator("note")
    @classmethod
    def check(cls, value: str | None) -> str | None:
        CALLS.append("validator")
        return value

    def model_post_init(self, context: Any) -> None:
        CALLS.append("model_post_init")
        self._seen += 1

    def __setstate__(self, state: Any) -> None:
        CALLS.append("setstate")


class Bookable(Protocol):
    def book(self) -> str: ...


@dataclass
class Hotel(Bookable):
    name: str

    def book(self) -> str:
        return self.name


@dataclass
class Box(Generic[Element]):
    inside: Element


class Page(pydantic.BaseModel, Generic[Element]):
    items: list[Element]


class Numbers(pydantic.RootModel[list[int]]):
    pass


@pydantic.dataclasses.dataclass(config={"validate_assignment": True})
class Checked:
    x: int


class Struct(msgspec.Struct, frozen=True, kw_only=True):
    x: Any
    note: str | msgspec.UnsetType = msgspec.UNSET


class Point(NamedTuple):
    x: int
    y: Any = 0


Pair = collections.namedtuple("Pair", "a b")


class Colour(enum.Enum):
    RED = (1, 2)

    @classmethod
    def _missing_(cls, value: object) -> Colour:
        CALLS.append("missing")
        return cls.RED


class Level(enum.IntEnum):
    LOW = 1


class Word(enum.StrEnum):
    HELLO = "hello"


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


class Options(TypedDict):
    lang: str


def _trip() -> Trip:
    return Trip(flights=[Flight("LH1", [4])], note="n")


VALUES = [
    Flight("LH1", [1]), Flight.Leg("NYC"), Seat("4"), Gate("B7"), _trip(), Trip.model_construct(flights=[]),
    Hotel("Ritz"), Box[int](1),
    Page[int](items=[1]), Page(items=["a"]), Numbers([1]), Checked(1), Struct(x=Point(1)), Struct(x=1, note="n"),
    Point(1, Pair(1, 2)),
    Colour.RED, Level.LOW, Word.HELLO, Rights.READ, Rights.READ | Rights.WRITE, Rights(0),
    {"a": [(Flight("x"), Colour.RED), {Gate("c"): frozenset({Level.LOW})}]},
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_it_comes_back_as_its_class_and_none_of_its_code_runs(value: Any) -> None:
    data = codec.encode(value)
    CALLS.clear()
    back = codec.decode(data)
    assert CALLS == []
    assert type(back) is type(value)
    assert back == value
    assert codec.encode(back) == data
    assert codec.digest(back) == codec.digest(value)


def test_a_model_keeps_which_fields_were_set_and_its_private_attributes() -> None:
    trip = Trip(flights=[])
    trip._seen = 7
    back = codec.decode(codec.encode(trip))
    assert back.model_fields_set == {"flights"}
    assert back._seen == 7


def test_a_typed_dict_comes_back_as_a_dict() -> None:
    assert codec.decode(codec.encode(Options(lang="de"))) == {"lang": "de"}


def test_a_new_field_takes_its_default_but_no_factory_runs() -> None:
    @dataclass
    class Grown:
        a: int
        b: int = 2
        c: list[int] = field(default_factory=list)

    registry.declare(Grown)
    name = f"{__name__}:{Grown.__qualname__}"
    assert codec.decode(_pack_object(name, {"a": 1})) == Grown(1)
    with pytest.raises(UnknownType, match="without 'a'"):
        codec.decode(_pack_object(name, {"b": 1}))
    with pytest.raises(UnknownType, match="with 'z'"):
        codec.decode(_pack_object(name, {"a": 1, "z": 1}))


def _factory() -> int:
    CALLS.append("factory")
    return 1


@dataclass
class MadeData:
    x: int = field(default_factory=_factory)


@attrs.define
class MadeAttrs:
    x: int = attrs.field(factory=_factory)


class MadeModel(pydantic.BaseModel):
    x: int = pydantic.Field(default_factory=_factory)


class MadeStruct(msgspec.Struct):
    x: int = msgspec.field(default_factory=_factory)


@pytest.mark.parametrize("cls", [MadeData, MadeAttrs, MadeModel, MadeStruct], ids=lambda cls: cls.__name__)
def test_a_default_factory_of_the_user_never_runs(cls: type) -> None:
    codec.encode(cls())
    CALLS.clear()
    with pytest.raises(UnknownType, match="without 'x'"):
        codec.decode(_pack_object(f"{__name__}:{cls.__name__}", {}))
    assert CALLS == []


def _pack_object(name: str, fields: dict[str, Any]) -> bytes:
    """The bytes of an object with that class name."""
    data = codec.encode(Flight.Leg("", 0))
    old = codec.encode(f"{__name__}:Flight.Leg")
    return data[: data.index(old)] + codec.encode(name) + b"\x01" + codec.encode(fields)


@typing_extensions.deprecated("use another")
class OldTrip(pydantic.BaseModel):
    city: str


with pytest.deprecated_call():

    class NewTrip(OldTrip):
        """As the state of LangGraph's prebuilt agents, whose base is deprecated."""


def test_a_deprecated_class_is_stored_although_the_mark_gives_it_a_new() -> None:
    with pytest.deprecated_call():
        old = OldTrip(city="Oslo")
    for value in (old, NewTrip(city="Oslo")):
        assert codec.decode(codec.encode(value)) == value


def test_a_local_class_is_refused_unless_it_is_declared() -> None:
    @dataclass
    class Local:
        x: int

    with pytest.raises(NotStorable, match=r"Agent\(types=\[\.\.\.\]\)"):
        codec.encode(Local(1))
    registry.declare(Local)
    assert codec.decode(codec.encode(Local(1))) == Local(1)


def test_annotations_of_a_step_declare_a_class() -> None:
    @dataclass
    class Answer:
        text: str

    def ask(question: str) -> Any:
        return Answer(question)

    with pytest.raises(NotStorable):
        codec.encode(Answer("a"))
    ask.__annotations__["return"] = list[Answer | None]
    registry.declare_annotations(ask)
    assert codec.decode(codec.encode(Answer("a"))) == Answer("a")


def test_a_renamed_class_is_found_by_its_old_name() -> None:
    data = _pack_object("gone.module:Old", {"to": "NYC", "price": 2.0})
    with pytest.raises(UnknownType, match="import gone.module before you read it") as caught:
        codec.decode(data)
    assert 'stored("gone.module:Old")' in str(caught.value)
    with decode_as_dicts():
        assert codec.decode(data) == {"class": "gone.module:Old", "to": "NYC", "price": 2.0}

    @codec.stored("gone.module:Old", version=2)
    @dataclass
    class New:
        target: str

    @codec.upcaster("gone.module:Old", 1)
    def rename(fields: dict[str, Any]) -> dict[str, Any]:
        return {"target": fields["to"]}

    assert codec.decode(data) == New("NYC")


def test_a_class_that_a_module_only_imports_is_not_found_there() -> None:
    with pytest.raises(UnknownType, match="no class with the stored name"):
        codec.decode(_pack_object("tests.unit.fast_tools:Path", {}))
    sys.modules["t_imports"] = type(sys)("t_imports")
    vars(sys.modules["t_imports"])["Leg"] = Flight.Leg
    try:
        with pytest.raises(UnknownType, match="no class with the stored name"):
            codec.decode(_pack_object("t_imports:Leg", {"to": "", "price": 1.0}))
    finally:
        del sys.modules["t_imports"]


PROGRAM = """
import sys
from dataclasses import dataclass
from perdure.values import codec

@dataclass
class Flight:
    number: str

if __name__ == "__main__":
    if len(sys.argv) > 1:
        assert codec.decode(bytes.fromhex(sys.argv[1])) == Flight("LH1")
    print(codec.encode(Flight("LH1")).hex())
"""


@pytest.mark.parametrize("how", [["trip_program.py"], ["-m", "trip_program"], ["-c", "import trip_program as t; "]])
def test_the_main_program_and_an_import_of_it_read_the_same_bytes(tmp_path: Path, how: list[str]) -> None:
    (tmp_path / "trip_program.py").write_text(PROGRAM)
    data = _python(tmp_path, "trip_program.py")
    assert b"trip_program:Flight" in bytes.fromhex(data)
    if how[0] == "-c":
        code = f"{how[1]} assert t.codec.decode(bytes.fromhex('{data}')) == t.Flight('LH1')"
        _python(tmp_path, "-c", code)
    else:
        assert _python(tmp_path, *how, data) == data


def _python(folder: Path, *arguments: str) -> str:
    path = os.pathsep.join([str(folder), str(Path(codec.__file__).parents[3])])
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
