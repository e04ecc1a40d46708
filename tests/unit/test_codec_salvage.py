"""What is kept of a value that cannot be stored: bounded, and storable whatever the value is."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import Any

import pytest

from perdure.values import codec
from perdure.values.codec.salvage import salvage


class Broken:
    def __repr__(self) -> str:
        raise RuntimeError


def circular() -> Any:
    value: list[Any] = []
    value += [value, value]
    return value


VALUES = [
    object(), Broken(), [Broken()], "x" * 10**7, ["x" * 1000] * 10**5, list(range(10**6)), 10**5000, float("nan"),
    {object(): {Broken(): "\ud800"}}, circular(), b"x" * 10**7, {"k": lambda: 1}, int,
    {n: n for n in range(10**5)}, deque(range(10**5)), defaultdict(lambda: 0, a=deque([object()])),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_it_is_small_and_can_be_stored(value: Any) -> None:
    kept = salvage(value)
    assert set(kept) == {"repr", "data"}
    assert len(codec.encode(kept)) < 1_000_000


def test_it_tells_what_the_value_was() -> None:
    assert salvage({"a": [1, object]})["data"] == {"a": [1, "<class 'object'>"]}
    assert salvage(defaultdict(lambda: 0, a=deque([1])))["data"] == {"a": [1]}
