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

from perdure import codec
from perdure.rehearsal.stand_ins import Stops, Unrecorded

USES: dict[str, Callable[[Any], object]] = {
    "attribute": lambda it: it.name,
    "set attribute": lambda it: setattr(it, "name", 1),
    "item": lambda it: it["name"],
    "set item": lambda it: operator.setitem(it, "name", 1),
    "truth": lambda it: not it,
    "equal": lambda it: it == 1,
    "equal to it": lambda it: operator.eq({"a": [1]}, it),
    "in a list": lambda it: it in [1, 2],
    "contains": lambda it: 1 in it,
    "key": lambda it: {it: 1},
    "less": lambda it: operator.lt(1, it),
    "length": lambda it: len(it),
    "iterate": lambda it: list(it),
    "unpack": lambda it: max(*it),
    "keywords": lambda it: dict(**it),
    "text": lambda it: str(it),
    "repr": lambda it: repr(it),
    "format": lambda it: f"{it:>3}",
    "percent": lambda it: "%s" % it,  # noqa: UP031 - this is what is tried
    "join": lambda it: " ".join(map(str, [it])),
    "add": lambda it: it + 1,
    "add to": lambda it: "a" + it,
    "add list": lambda it: [1, *it],
    "in place": lambda it: operator.iadd(it, 1),
    "number": lambda it: int(it),
    "index": lambda it: [1, 2][it],
    "round": lambda it: round(it),
    "sum": lambda it: sum([it]),
    "max": lambda it: max(it, 2),
    "sort": lambda it: sorted([it, 2]),
    "range": lambda it: range(it),
    "call": lambda it: it(),
    "with": lambda it: it.__enter__(),
    "await": lambda it: asyncio.run(_awaited(it)),
    "instance": lambda it: isinstance(it, dict),
    "class": lambda it: it.__class__,
    "path": lambda it: os.fspath(it),
    "copy": lambda it: copy.copy(it),
    "deep copy": lambda it: copy.deepcopy([it]),
    "reduce": lambda it: it.__reduce_ex__(2),
    "json": lambda it: json.dumps({"a": it}),
    "bytes": lambda it: bytes(it),
    "store": lambda it: codec.encode({"a": [it]}),
    "digest": lambda it: codec.digest({"a": it}, "arguments"),
    "match": lambda it: _matched(it),
}


async def _awaited(it: Any) -> Any:
    return await it


def _matched(it: Any) -> bool:
    match it:
        case {"a": _}:
            return True
    return False


def used() -> Unrecorded:
    return Unrecorded(lambda: Stops("it was used"))


@pytest.mark.parametrize("use", USES)
def test_every_use_stops(use: str) -> None:
    with pytest.raises(Stops, match="it was used"):
        USES[use](used())


def test_passing_it_on_does_not() -> None:
    it = used()
    held = {"a": [it], "b": (it, 1)}

    def through(value: Any, *more: Any) -> Any:
        return value

    assert through(held["a"][0]) is it
    assert it is not None  # which cannot be seen from inside: see VALUES
