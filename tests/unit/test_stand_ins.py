"""A result that is not recorded: it can be passed on, and nothing else."""

from __future__ import annotations

import asyncio
import copy
import json
import operator
import os
from collections.abc import Callable
from typing import Any

import pytest

from perdure.run.rehearse.placeholders import ReplayStop, UnrecordedResult
from perdure.values import codec

USES: dict[str, Callable[[Any], object]] = {
    "attribute": lambda value: value.name,
    "set attribute": lambda value: setattr(value, "name", 1),
    "item": lambda value: value["name"],
    "set item": lambda value: operator.setitem(value, "name", 1),
    "truth": lambda value: not value,
    "equal": lambda value: value == 1,
    "equal from the left": lambda value: operator.eq({"a": [1]}, value),
    "in a list": lambda value: value in [1, 2],
    "contains": lambda value: 1 in value,
    "key": lambda value: {value: 1},
    "less": lambda value: operator.lt(1, value),
    "length": lambda value: len(value),
    "iterate": lambda value: list(value),
    "unpack": lambda value: max(*value),
    "keywords": lambda value: dict(**value),
    "text": lambda value: str(value),
    "repr": lambda value: repr(value),
    "format": lambda value: f"{value:>3}",
    "percent": lambda value: "%s" % value,  # noqa: UP031 - this is what is tried
    "join": lambda value: " ".join(map(str, [value])),
    "add": lambda value: value + 1,
    "add to": lambda value: "a" + value,
    "add list": lambda value: [1, *value],
    "in place": lambda value: operator.iadd(value, 1),
    "number": lambda value: int(value),
    "index": lambda value: [1, 2][value],
    "round": lambda value: round(value),
    "sum": lambda value: sum([value]),
    "max": lambda value: max(value, 2),
    "sort": lambda value: sorted([value, 2]),
    "range": lambda value: range(value),
    "call": lambda value: value(),
    "with": lambda value: value.__enter__(),
    "await": lambda value: asyncio.run(_await_value(value)),
    "instance": lambda value: isinstance(value, dict),
    "class": lambda value: value.__class__,
    "path": lambda value: os.fspath(value),
    "copy": lambda value: copy.copy(value),
    "deep copy": lambda value: copy.deepcopy([value]),
    "reduce": lambda value: value.__reduce_ex__(2),
    "json": lambda value: json.dumps({"a": value}),
    "bytes": lambda value: bytes(value),
    "store": lambda value: codec.encode({"a": [value]}),
    "digest": lambda value: codec.digest({"a": value}, "arguments"),
    "match": lambda value: _match_value(value),
}


async def _await_value(value: Any) -> Any:
    return await value


def _match_value(value: Any) -> bool:
    match value:
        case {"a": _}:
            return True
    return False


def make_used() -> UnrecordedResult:
    return UnrecordedResult(lambda: ReplayStop("value was used"))


@pytest.mark.parametrize("use", USES)
def test_every_use_stops(use: str) -> None:
    with pytest.raises(ReplayStop, match="value was used"):
        USES[use](make_used())


def test_passing_it_on_does_not() -> None:
    value = make_used()
    held = {"a": [value], "b": (value, 1)}

    def through(value: Any, *more: Any) -> Any:
        return value

    assert through(held["a"][0]) is value
    assert value is not None  # which cannot be seen from inside: see VALUES
