"""Any change of names, order, loops and parameters: what was done is found again, and nothing is done twice.

Functions are known here by a letter, whatever the program calls them. Whether one is done is counted by the k of
matching: of equal calls in one place, there have been as many as the most that any version has come to.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure import Agent

LETTERS = "abc"
RUNS = itertools.count()

calls = st.tuples(st.sampled_from(LETTERS), st.integers(0, 1))
versions = st.fixed_dictionaries(
    {
        "renamed": st.sets(st.sampled_from(LETTERS)),
        "wider": st.sets(st.sampled_from(LETTERS)),
        "loop": st.booleans(),
        "calls": st.lists(calls, max_size=5),
        "items": st.lists(st.integers(0, 2), max_size=3, unique=True),
        "inside": st.lists(calls, max_size=2),
        "left": st.integers(0, 12),
    }
)


class Left(Exception):
    """The version is left here."""


class Names:
    """What things are called by now, and were before."""

    def __init__(self) -> None:
        self.of = {letter: [letter] for letter in (*LETTERS, "loop")}
        self.width = dict.fromkeys(LETTERS, 0)

    def change(self, version: dict[str, Any]) -> None:
        for letter in sorted(version["renamed"]) + ["loop"] * version["loop"]:
            self.of[letter].append(f"{letter}{len(self.of[letter])}")
        for letter in version["wider"]:
            self.width[letter] = min(2, self.width[letter] + 1)

    def body(self, letter: str, done: Callable[[int], str]) -> Callable[..., str]:
        """The function as it is by now: each time with a parameter more."""
        bodies: tuple[Callable[..., str], ...] = (
            lambda n: done(n),
            lambda n, limit=10: done(n),
            lambda n, limit=10, sort=None: done(n),
        )
        return bodies[self.width[letter]]


@pytest.fixture
def shared(store_url: str) -> Iterator[str]:
    """The store, kept open between versions."""
    agent = Agent("keeper", store=store_url, durability="process")
    agent.runs.list()
    yield store_url
    agent.close()


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=st.lists(versions, min_size=2, max_size=4), effects=st.booleans())
def test_whatever_changes_nothing_is_done_twice(shared: str, history: list[dict[str, Any]], effects: bool) -> None:
    names, done, most = Names(), Counter[Any](), Counter[Any]()
    run_id = f"r{next(RUNS)}"
    for version in history:
        names.change(version)
        reached = _play(shared, names, version, run_id, effects, done)
        most |= reached
        assert done == most


def _play(
    url: str, names: Names, version: dict[str, Any], run_id: str, effects: bool, done: Counter[Any]
) -> Counter[Any]:
    """One version, up to where it is left; returns the calls that it has come to, by place."""
    agent, place, reached = Agent("a", store=url, durability="process"), [""], Counter[Any]()

    def declared(letter: str) -> Any:
        def body(n: int) -> str:
            done[place[0], letter, n] += 1
            return f"{letter}{n}"

        *was, name = names.of[letter]
        if effects:
            return agent.effect(name=name, was=was, on_change="rerun")(names.body(letter, body))
        return agent.step(name=name, was=was)(names.body(letter, body))

    functions = {letter: declared(letter) for letter in LETTERS}
    left = version["left"]

    def call(letter: str, n: int) -> None:
        nonlocal left
        if not left:
            raise Left
        left -= 1
        assert functions[letter](n) == f"{letter}{n}"
        reached[place[0], letter, n] += 1

    try:
        with agent.run(run_id) as run:
            for letter, n in version["calls"]:
                call(letter, n)
            *before, name = names.of["loop"]
            for item in run.each(version["items"], name=name, was=before):
                place[0] = str(item)
                for letter, n in version["inside"]:
                    call(letter, n)
            raise Left
    except Left:
        pass
    agent.close()
    return reached
