"""Classes change: versions, upcasters, defaults, reloads; and nothing is lost in silence."""

from __future__ import annotations

import collections
import enum
from dataclasses import dataclass, field
from typing import Any

import attrs
import msgspec
import pydantic
import pytest

from perdure.errors import NotStorable, UnknownType
from perdure.values import codec


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
    with pytest.raises(UnknownType, match=r"but the class is now version 4 .*from version 2 to 3: .*\"t-gap\", 2\)"):
        codec.decode(data)


def test_data_newer_than_the_code() -> None:
    data = codec.encode(codec.stored("t-newer", 7)(_class("Newer", "a"))(1))
    codec.stored("t-newer", 6)(_class("Newer", "a"))
    with pytest.raises(UnknownType, match=r"version 7, but this process has version 6 \(upgrade"):
        codec.decode(data)


def test_an_upcaster_that_raises_is_named() -> None:
    data = codec.encode(codec.stored("t-bad-up", 1)(_class("BadUp", "a"))(1))
    codec.stored("t-bad-up", 2)(_class("BadUp", "a"))
    codec.upcaster("t-bad-up", 1)(lambda fields: {"a": fields["nothing"]})
    with pytest.raises(UnknownType, match="upcaster of 't-bad-up' from version 1 raised KeyError") as caught:
        codec.decode(data)
    assert isinstance(caught.value.__cause__, KeyError)


def test_an_upcaster_that_returns_nothing_is_told_so() -> None:
    data = codec.encode(codec.stored("t-none-up", 1)(_class("NoneUp", "a"))(1))
    codec.stored("t-none-up", 2)(_class("NoneUp", "a"))
    codec.upcaster("t-none-up", 1)(lambda fields: fields.update(b=2))
    with pytest.raises(UnknownType, match=r"upcaster of 't-none-up' from version 1 returned None \(it must return"):
        codec.decode(data)


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


def test_one_name_is_for_one_class() -> None:
    codec.stored("t-twice")(_class("One", "a"))
    with pytest.raises(NotStorable, match=r"'t-twice' is already the name of .*One, not of .*Other"):
        codec.stored("t-twice")(_class("Other", "a"))
    cls = codec.stored("t-two-names")(_class("TwoNames", "a"))
    with pytest.raises(NotStorable, match="is already registered as 't-two-names', not 't-second'"):
        codec.stored("t-second")(cls)
    codec.upcaster("t-twice", 1)(_class)
    with pytest.raises(NotStorable, match="two upcasters from version 1"):
        codec.upcaster("t-twice", 1)(_attrs_version)


def test_a_reloaded_class_takes_over_and_old_objects_still_go() -> None:
    old = codec.stored("t-reload")(_class("Reload", "a"))
    new = codec.stored("t-reload")(_class("Reload", "a"))
    assert type(codec.decode(codec.encode(old(1)))) is new
