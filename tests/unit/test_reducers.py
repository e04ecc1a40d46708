"""Which reducers are the same: by their code, and by what it uses."""

from __future__ import annotations

import logging
import operator
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from perdure.events.reducers import parts_of

logger = logging.getLogger("tests")
WORDS = re.compile("a+")
RATE = 1


class Settings:
    rate = 1

    @staticmethod
    def scaled(number: int) -> int:
        return number * RATE


def helper() -> int:
    return RATE


def by_a_helper(total: int, event: Any) -> int:
    logger.debug("one more")
    return total + helper()


def by_a_class(total: int, event: Any) -> int:
    return total + Settings.rate


def by_a_method_of_a_class(total: int, event: Any) -> int:
    return total + Settings.scaled(1)


def by_a_pattern(total: int, event: Any) -> int:
    return total + len(WORDS.findall(event.payload))


def by_words(total: int, event: Any) -> int:
    return total + (event.kind in {"one", "two", "three", "four"})


class Countdown:
    """Calls itself, and is called."""

    def __init__(self, **more: Any) -> None:
        self.itself = self
        self.more = more

    def __call__(self, total: int, event: Any) -> int:
        return total + helper()


@pytest.mark.parametrize("reducer", [by_a_helper, by_a_method_of_a_class, Countdown(), partial(by_a_helper)])
def test_what_is_used_far_below_counts(reducer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = parts_of(reducer)
    assert before is not None
    assert before == parts_of(reducer)
    monkeypatch.setitem(globals(), "RATE", 5)
    assert parts_of(reducer) not in (None, before)


def test_values_of_classes_and_patterns_count(monkeypatch: pytest.MonkeyPatch) -> None:
    before = [parts_of(by_a_class), parts_of(by_a_pattern)]
    monkeypatch.setattr(Settings, "rate", 5)
    monkeypatch.setitem(globals(), "WORDS", re.compile("b+"))
    after = [parts_of(by_a_class), parts_of(by_a_pattern)]
    assert None not in before + after
    assert before[0] != after[0]
    assert before[1] != after[1]


def test_a_function_may_use_itself_and_builtin_ones_have_names() -> None:
    def again(total: int, event: Any) -> int:
        return again(total - 1, event) if total else 0

    assert parts_of(again) == parts_of(again) != None  # noqa: E711
    assert parts_of(operator.add) != parts_of(operator.sub)
    assert parts_of({"a": 1}.get) != parts_of({"a": 2}.get)
    assert parts_of(Countdown(by=helper)) != parts_of(Countdown(by=by_words))


def _unset() -> Callable[..., Any]:
    def reducer(total: int, event: Any) -> Any:
        return later

    if not reducer:
        later = 1
    return reducer


def test_what_cannot_be_told_is_not() -> None:
    deep: list[Any] = [threading.Lock]
    for _ in range(100):
        deep = [deep]
    for reducer in (
        Countdown(lock=threading.Lock()),
        partial(by_words, threading.Lock()),
        _unset(),
        Countdown(deep=deep),
    ):
        assert parts_of(reducer) is None


def test_it_is_the_same_in_another_process() -> None:
    """Where texts have other hashes."""
    program = (
        f"from {__name__} import *\n"
        "told = [parts_of(it) for it in (by_words, by_a_helper, Countdown(), by_a_class)]\nprint(None in told, told)"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(told) == 1
    assert not told.pop().startswith("True")
