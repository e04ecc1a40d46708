"""Kinds of events with a schema: checked when appended, typed when read, and nothing of other versions is lost."""

from __future__ import annotations

import enum
import time
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any

import msgspec
import pytest

from perdure import Agent, kinds, stored, upcaster
from perdure.errors import EventInvalid, NotStorable, UnknownType

from .kit import agent_at

pytest.importorskip("attrs")  # whoever certifies a store need not have them
pytest.importorskip("pydantic")

import attrs
import pydantic


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Line:
    item: str
    count: int = 1


@stored("test-events-stamp")
@dataclass
class Stamp:
    text: str


@dataclass
class Order:
    """With parts of all sorts."""

    number: int
    total: Decimal
    lines: list[Line] = field(default_factory=list)
    colour: Colour = Colour.RED
    path: PurePosixPath = field(default_factory=PurePosixPath)
    size: tuple[int, ...] = ()
    stamp: Stamp | None = None
    anything: Any = None


class Shipped(msgspec.Struct, rename="camel", tag="shipped", forbid_unknown_fields=True):
    order_number: int
    to: Line | None = None


class Paid(pydantic.BaseModel):
    amount: int = pydantic.Field(alias="cents", gt=0)
    lines: list[Line] = pydantic.Field(default_factory=list)


class Open(pydantic.BaseModel, extra="allow"):
    name: str


@attrs.define
class Weighed:
    kilos: float


ORDER = Order(
    1, Decimal("9.90"), [Line("pen", 2)], Colour.RED, PurePosixPath("/a"), (1, 2), Stamp("x"), (1, {2}, Stamp("y"))
)  # fmt: skip


def with_kinds(store_url: str, name: str = "tester") -> Agent:
    agent = agent_at(store_url, name)
    for schema in (Order, Shipped, Paid, Weighed, Open):
        agent.events.kind(schema=schema)
    return agent


def test_objects_come_back_as_they_were(store_url: str) -> None:
    agent = with_kinds(store_url)
    given = [
        ORDER,
        Shipped(7, Line("pen")),
        Paid(cents=5, lines=[Line("ink")]),
        Weighed(1.5),
        Open(name="a", more=(1,)),
    ]
    agent.events.append_many(given)
    found = list(agent.events.read())
    assert [event.payload for event in found] == given
    assert [event.kind for event in found] == ["ORDER", "SHIPPED", "PAID", "WEIGHED", "OPEN"]
    assert [event.payload for event in agent.events.read(kind=Paid)] == given[2:3]
    without = list(agent_at(store_url).events.read("SHIPPED"))  # no class is needed to read it
    assert (
        without[0].payload == found[1].data == {"type": "shipped", "orderNumber": 7, "to": {"item": "pen", "count": 1}}
    )
    with agent.run("r") as run:
        run.event(Weighed(2.0))
        run.event("WEIGHED", {"kilos": 3})
        with pytest.raises(EventInvalid):
            run.event("WEIGHED", {"kilos": "much"})
    assert [event.payload.kilos for event in agent.events.read(run="r")] == [2.0, 3.0]


@pytest.mark.parametrize(
    ("kind", "payload", "words"),
    [
        ("ORDER", {"number": "1", "total": Decimal(1)}, r"ORDER.*`int`, got `str` - at `\$\.number`"),
        (
            "ORDER",
            {"numbr": 1, "total": Decimal(1)},
            r"did you mean 'number' by 'numbr'\?.*Order has the fields number, total",
        ),
        ("ORDER", Order(1, "free"), r"`\$\.total`"),  # type: ignore[arg-type]
        ("ORDER", {"number": 1, "total": Decimal(1), "path": 5}, r"PurePosixPath"),
        ("ORDER", None, "missing required field `number`"),
        ("ORDER", "a text", "`Order` or a dict, got `str`"),
        ("SHIPPED", {"orderNumber": 1, "other": 2}, "other"),
        ("PAID", {"cents": -1}, r"PAID.*cents.*greater than 0"),
    ],
)
def test_what_does_not_fit_is_refused_at_the_call(store_url: str, kind: str, payload: Any, words: str) -> None:
    agent = with_kinds(store_url)
    with pytest.raises(EventInvalid, match=words):
        agent.events.append(kind, payload)
    assert list(agent.events.read()) == []


def test_what_a_newer_program_has_added_is_kept(store_url: str) -> None:
    newer = agent_at(store_url)
    newer.events.append("WEIGHED", {"kilos": 1.5, "scale": (1, 2)})
    newer.events.append("SHIPPED", {"type": "shipped", "orderNumber": 1, "to": {"item": "a", "by": "air"}, "when": 3})
    newer.events.append("OPEN", {"name": "a", "other": 1})
    weighed, shipped, opened = with_kinds(store_url).events.read()
    assert (weighed.payload, weighed.extra) == (Weighed(1.5), {"scale": (1, 2)})
    assert (shipped.payload.to, shipped.extra, shipped.data["to"]["by"]) == (Line("a"), {"when": 3}, "air")
    assert (opened.payload.other, opened.extra) == (1, {})
    agent = with_kinds(store_url)
    agent.events.append(weighed.kind, weighed.data)
    assert list(agent.events.read(kind=Weighed))[-1].extra == {"scale": (1, 2)}, "and is passed on"
    agent.events.append("PAID", {"cents": 5, "by": "card"})
    [paid] = agent.events.read(kind=Paid)
    assert (paid.data, paid.extra) == ({"amount": 5, "lines": [], "by": "card"}, {"by": "card"})


def test_versions_go_through_upcasters(store_url: str) -> None:
    @dataclass
    class Price:
        euros: float

    @dataclass
    class PriceInCents:
        cents: int

    name = f"price {time.perf_counter_ns()}"  # upcasters are those of the whole process
    old, new = agent_at(store_url), agent_at(store_url)
    old.events.kind(name, schema=Price)
    new.events.kind(name, schema=PriceInCents, version=2)
    old.events.append(name, {"euros": 1.5, "note": "sale"})
    new.events.append(PriceInCents(99))
    with pytest.raises(UnknownType, match="no upcaster from version 1 to 2"):
        list(new.events.read())

    @upcaster(name, from_version=1)
    def in_cents(fields: dict[str, Any]) -> dict[str, Any]:
        return {"cents": int(fields.pop("euros") * 100), **fields}

    assert [(event.payload, event.extra) for event in new.events.read()] == [
        (PriceInCents(150), {"note": "sale"}),
        (PriceInCents(99), {}),
    ]
    with pytest.raises(UnknownType, match="written with schema version 2, but this program has 1"):
        list(old.events.read())
    assert [event.payload for event in old.events.read(typed=False)][1] == {"cents": 99}
    agent_at(store_url).events.append(name, {"euros": "many"})
    with pytest.raises(UnknownType, match="the upcaster of"):
        list(new.events.read())
    with pytest.raises(EventInvalid, match="typed=False"):
        list(old.events.read(last=1))


def test_the_vocabulary_is_ready_and_binds_nobody(store_url: str) -> None:
    agent = agent_at(store_url)
    given = [
        kinds.Plan("ship it", ["build", "push"]),
        kinds.Decision("9am", why="cheapest", options=["9am", 11]),
        kinds.ToolCall("search", {"box": (1, 2)}, id="c1"),
        kinds.ToolResult("search", result={"a"}, id="c1"),
        kinds.Observation("rain", source="window"),
        kinds.Error.of(ValueError("no seat"), where="book"),
        kinds.Handoff("ann", task="call them"),
    ]
    agent.events.append_many(given)
    assert [event.payload for event in agent.events.read()] == given
    assert [event.kind for event in agent.events.read()] == [*kinds.VOCABULARY]
    agent.events.append("error", "only words")
    agent.events.append("decision", {"mine": 1})
    assert [event.payload for event in agent.events.read(last=2)] == ["only words", {"mine": 1}]
    with pytest.raises(EventInvalid, match="decision"):
        agent.events.append(kinds.Decision(17))  # type: ignore[arg-type]


def test_what_is_no_schema_is_refused(store_url: str) -> None:
    agent = agent_at(store_url)

    class Plain:
        pass

    class Row(msgspec.Struct, array_like=True):
        number: int

    for wrong in (Plain, Row, Colour, int):
        with pytest.raises(NotStorable):
            agent.events.kind("K", schema=wrong)
    with pytest.raises(TypeError, match=r"events\.kind"):
        agent.events.append(Plain())
    with pytest.raises(TypeError, match="kind="):
        agent.events.read(kind=Plain)
    with pytest.raises(ValueError, match="version"):
        agent.events.kind("K", schema=Line, version=0)

    @agent.events.kind("LINE", version=3)
    @dataclass
    class Mine:
        item: str

    @agent.events.kind
    @dataclass
    class HTTPCall:
        url: str

    agent.events.append(Mine("a"))
    agent.events.append(HTTPCall("b"))
    assert [(event.kind, event.version) for event in agent.events.read()] == [("LINE", 3), ("HTTP_CALL", 1)]


def test_a_kind_has_one_schema_of_a_version(store_url: str) -> None:
    agent = agent_at(store_url)
    agent.events.kind("LINE", schema=Line)

    @dataclass
    class Other:
        item: str
        count: str = ""

    @dataclass
    class Alike:
        item: str
        count: int = 1

    with pytest.raises(NotStorable, match=r"version 1 of the kind 'LINE' is already .*Line, not .*Other") as told:
        agent.events.kind("LINE", schema=Other)
    assert "raise the version" in told.value.hint
    agent.events.append("LINE", {"item": "a", "count": 2})
    assert [event.payload for event in agent.events.read()] == [Line("a", 2)], "the first one counts"
    for fine in (Line, Alike):
        agent.events.kind("LINE", schema=fine)
    agent.events.kind("LINE", schema=Other, version=2)
    agent.events.kind("plan", schema=Other)


def test_several_are_given_with_or_without_a_payload(store_url: str) -> None:
    agent = agent_at(store_url)
    agent.events.kind("LINE", schema=Line)
    agent.events.append_many([("K",), "K", ("K", 1), Line("a"), (Line("b"),)])
    assert [event.payload for event in agent.events.read()] == [None, None, 1, Line("a"), Line("b")]
    for wrong in ((), ("K", 1, 2)):
        with pytest.raises(TypeError, match="a \\(kind, payload\\) tuple"):
            agent.events.append_many([wrong])
