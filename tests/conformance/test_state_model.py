"""`agent.state` beside a pure model of it: whatever is done in whatever order, both say the same."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure import Agent
from perdure.errors import VersionConflict
from perdure.journal import rebuild
from perdure.store import open_store

SPACES, KEYS = ("a", "b"), ("x", "y", "ä")
Pair = tuple[str, str]


class Model:
    """Every namespace as the list of what it has been."""

    def __init__(self) -> None:
        self.past: dict[str, list[dict[str, Any]]] = {space: [{}] for space in SPACES}
        self.history: dict[Pair, list[Any]] = {(space, key): [] for space in SPACES for key in KEYS}

    def now(self, space: str) -> dict[str, Any]:
        return self.past[space][-1]

    def version(self, at: Pair) -> int:
        return len(self.history[at]) if at[1] in self.now(at[0]) else 0

    def put(self, at: Pair, value: Any) -> None:
        """Another value; None removes the key."""
        space, key = at
        after = dict(self.now(space))
        if value is None and key not in after:
            return
        after.pop(key, None)
        if value is not None:
            after[key] = value
        self.past[space].append(after)
        self.history[at].append(value)

    def revert(self, space: str, to: int) -> int:
        wanted, now = self.past[space][to], self.now(space)
        changed = sorted(key for key in wanted.keys() | now.keys() if wanted.get(key) != now.get(key))
        for key in changed:
            self.put((space, key), wanted.get(key))
        return len(changed)


pairs = st.tuples(st.sampled_from(SPACES), st.sampled_from(KEYS))
numbers = st.integers(-5, 5)
moves = st.one_of(
    st.tuples(st.just("set"), pairs, numbers),
    st.tuples(st.just("delete"), pairs),
    st.tuples(st.just("incr"), pairs, numbers),
    st.tuples(st.just("set if"), pairs, numbers, st.integers(0, 4)),
    st.tuples(st.just("transaction"), st.lists(st.tuples(pairs, st.none() | numbers), max_size=4)),
    st.tuples(st.just("step"), st.lists(st.tuples(pairs, st.none() | numbers), max_size=4)),
    st.tuples(st.just("revert"), st.sampled_from(SPACES), st.floats(0, 1)),
)


class Game:
    """Both of them, move by move."""

    def __init__(self, agent: Agent) -> None:
        self.agent, self.model, self.runs = agent, Model(), 0

    def play(self, move: tuple[Any, ...]) -> None:
        kind, *rest = move
        getattr(self, f"_{kind.replace(' ', '_')}")(*rest)
        for space in SPACES:
            assert self.agent.state.items(space) == sorted(self.model.now(space).items())
            assert self.agent.state.revision(space) == len(self.model.past[space]) - 1

    def _set(self, at: Pair, value: int) -> None:
        self.model.put(at, value)
        assert self.agent.state.set(*at, value) == len(self.model.history[at])

    def _delete(self, at: Pair) -> None:
        assert self.agent.state.delete(*at) == (at[1] in self.model.now(at[0]))
        self.model.put(at, None)

    def _incr(self, at: Pair, by: int) -> None:
        self.model.put(at, self.model.now(at[0]).get(at[1], 0) + by)
        assert self.agent.state.incr(*at, by) == self.model.now(at[0])[at[1]]

    def _set_if(self, at: Pair, value: int, version: int) -> None:
        if version == self.model.version(at):
            self.agent.state.set(*at, value, if_version=version)
            self.model.put(at, value)
        else:
            with pytest.raises(VersionConflict) as lost:
                self.agent.state.set(*at, value, if_version=version)
            assert (lost.value.found, lost.value.theirs) == (self.model.version(at), self.model.now(at[0]).get(at[1]))

    def _transaction(self, changes: list[tuple[Pair, int | None]]) -> None:
        with self.agent.state.transaction() as t:
            for at, value in changes:
                t.delete(*at) if value is None else t.set(*at, value)
        self._land(changes)

    def _step(self, changes: list[tuple[Pair, int | None]]) -> None:
        def body() -> None:
            for at, value in changes:
                state = self.agent.state
                state.delete(*at) if value is None else state.set(*at, value)

        self.runs += 1
        for _ in range(2):  # the second time it is only remembered
            with self.agent.run(f"run {self.runs}") as run:
                run.step(body, name="body")
        self._land(changes)

    def _land(self, changes: list[tuple[Pair, int | None]]) -> None:
        """Of several changes of one key, the last; in the order in which the keys were first named."""
        for at, value in dict(changes).items():
            self.model.put(at, value)

    def _revert(self, space: str, share: float) -> None:
        to = int(share * (len(self.model.past[space]) - 1))
        assert self.agent.state.revert(to, ns=space) == self.model.revert(space, to)

    def look_back(self) -> None:
        """All of the past, in the end."""
        for space, past in self.model.past.items():
            for number, then in enumerate(past):
                assert self.agent.state.at(number).items(space) == sorted(then.items())
        for at, values in self.model.history.items():
            assert [version.value for version in self.agent.state.history(*at)] == values


def test_it_does_what_the_model_does(store_url: str) -> None:
    names = itertools.count()  # each story has an agent of its own, and so a state of its own

    @settings(max_examples=60)
    @given(st.lists(moves, min_size=1, max_size=12))
    def play(story: list[tuple[Any, ...]]) -> None:
        game = Game(Agent(f"agent {next(names)}", store=store_url))
        for move in story:
            game.play(move)
        game.look_back()
        game.agent.close()

    play()
    store = open_store(store_url)
    assert rebuild.check(store) == []
    store.close()
