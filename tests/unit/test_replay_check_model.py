"""Any edit of a program: when `perdure replay-check` passes it, a resume does nothing twice.

Each call has a number that no edit changes, by which the outside world counts; to Perdure it is known by its name, its
arguments and its place, all of which edits change.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from perdure import Agent, PerdureError
from perdure.cli.replay_targets import RunTarget, enable_rehearsal, rehearse
from perdure.run.rehearse.verdict import ReplayRules
from tests.budget import IN_SOAK

NAMES = ("sa", "sb", "ea", "eb")
"""Steps and effects."""

RUNS, NUMBERS = itertools.count(), itertools.count(1000)

calls = st.fixed_dictionaries({"name": st.sampled_from(NAMES), "uses": st.booleans()})
items = st.lists(st.integers(0, 3), max_size=3, unique=True)
nodes = st.one_of(
    st.fixed_dictionaries({"kind": st.just("call"), "body": st.lists(calls, min_size=1, max_size=1)}),
    st.fixed_dictionaries(
        {
            "kind": st.just("loop"),
            "label": st.sampled_from(("", "x")),
            "items": items,
            "body": st.lists(calls, max_size=2),
        }
    ),
    st.fixed_dictionaries({"kind": st.just("child"), "label": st.just("p"), "body": st.lists(calls, max_size=2)}),
)
programs = st.lists(nodes, min_size=1, max_size=4)
edits = st.tuples(
    st.sampled_from(("rename", "argument", "use", "drop", "insert", "swap", "label", "items", "wrap", "empty")),
    st.integers(0, 7),
    st.sampled_from(NAMES),
    items,
)

Program = list[dict[str, Any]]


class Left(Exception):
    """The first version is left here."""


def number_calls(program: Program) -> Program:
    """Every call has arguments of its own, so that no two of them can be taken for each other."""
    made = copy.deepcopy(program)
    for call in (call for node in made for call in node["body"]):
        call["number"] = call["argument"] = next(NUMBERS)
    for place, node in enumerate(made):
        node["label"] = node.get("label", "") and f"{node['label']}{place}"
    return made


def apply_edit(program: Program, edit: tuple[str, int, str, list[int]]) -> Program:
    """The program after one edit; the same where it does not apply."""
    kind, at, name, some = edit
    made = copy.deepcopy(program)
    flat = [call for node in made for call in node["body"]]
    node = made[at % len(made)] if made else {"kind": ""}
    call = flat[at % len(flat)] if flat else {}
    new = {"name": name, "uses": False, "number": (number := next(NUMBERS)), "argument": number}
    if kind == "rename":
        call["name"] = name[0] + call.get("name", "")[1:] + "2"
    elif kind == "argument":
        call["argument"] = number
    elif kind == "use":
        call["uses"] = not call.get("uses", False)
    elif kind == "drop" and made:
        made.remove(node)
    elif kind == "insert":
        made.insert(at % (len(made) + 1), {"kind": "call", "label": "", "body": [new]})
    elif kind == "swap" and made:
        made.append(made.pop(at % len(made)))
    elif kind == "label" and node["kind"] in ("loop", "child"):
        node["label"] += "n"
    elif kind == "items" and node["kind"] == "loop":
        node["items"] = some
    elif kind == "wrap" and node["kind"] == "call":
        node["kind"], node["label"] = "child", f"w{at}"
    elif kind == "empty":
        node["body"] = []
    return made


class Version:
    """A program that goes through its calls, and counts what it does."""

    def __init__(self, url: str, program: Program, done: Counter[tuple[int, int]], left: int = -1) -> None:
        self.agent = Agent("a", store=url, durability="process")
        self._program, self._done, self._left = program, done, left
        names = {call["name"] for node in program for call in node["body"]} | set(NAMES)
        self._functions = {name: self._declare(name) for name in sorted(names)}

    def _declare(self, name: str) -> Any:
        def body(given: Any, number: int, item: int) -> str:
            self._done[number, item] += 1
            return f"{name} {given}"

        make: Callable[..., Any] = self.agent.effect if name.startswith("e") else self.agent.step
        return make(name=name, ignore=("number", "item"))(body)

    def main(self, run_id: str) -> None:
        last: Any = ""
        with self.agent.run(run_id) as run:
            for node in self._program:
                if node["kind"] == "loop":
                    for item in run.each(node["items"], name=node["label"]):
                        self._go(node["body"], "", item)
                    last = ""  # a resume does not enter items that are done, so nothing may come out of them
                elif node["kind"] == "child":
                    with self.agent.run(f"{run_id}/{node['label']}"):
                        last = self._go(node["body"], last)
                else:
                    last = self._go(node["body"], last)
            if self._left >= 0:
                raise Left

    def _go(self, body: list[dict[str, Any]], last: Any, item: int = -1) -> Any:
        for call in body:
            if self._left == 0:
                raise Left
            self._left -= 1
            given = [call["argument"], last] if call["uses"] else call["argument"]
            last = self._functions[call["name"]](given, call["number"], item)
        return last


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    url = f"sqlite:///{tmp_path_factory.mktemp('replays') / 'home.db'}"
    keeps_open = Agent("keeps", store=url, durability="process")
    keeps_open.state.set("a", "b", 1)
    yield url
    keeps_open.close()


def passes(url: str, program: Program, run_id: str, rules: ReplayRules) -> bool:
    """Whether the deploy of a program may go on."""
    done: Counter[tuple[int, int]] = Counter()
    with enable_rehearsal(rules) as rehearsal:
        version = Version(url, program, done)
        replays = rehearse(rehearsal, RunTarget(version.main, by_id=True), run_id)
        version.agent.close()
        assert rules.run_steps or not done, "something was run"
        return not rehearsal.broken and bool(replays) and not any(replay.fails for replay in replays)


@settings(
    max_examples=1500 if IN_SOAK else 60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    program=programs,
    left=st.integers(0, 12),
    changes=st.lists(edits, max_size=3),
    rules=st.builds(ReplayRules, run_steps=st.booleans(), allow_steps=st.booleans()),
)
def test_whatever_is_edited_what_passes_does_nothing_twice(
    shared: str, program: Program, left: int, changes: list[tuple[str, int, str, list[int]]], rules: ReplayRules
) -> None:
    done: Counter[tuple[int, int]] = Counter()
    run_id, before = f"r{next(RUNS)}", number_calls(program)
    first = Version(shared, before, done, left)
    with contextlib.suppress(Left):
        first.main(run_id)
    first.agent.close()
    after = before
    for change in changes:
        after = apply_edit(after, change)
    passed = passes(shared, after, run_id, rules)
    event(f"{'passes' if passed else 'fails'}, {len(changes)} edits")
    assert passed or after != before
    next_version = Version(shared, after, done)
    with contextlib.suppress(PerdureError):
        next_version.main(run_id)
    next_version.agent.close()
    effects = {call["number"] for node in before for call in node["body"] if call["name"].startswith("e")}
    twice = [one for one, times in done.items() if times > 1 and (not rules.allow_steps or one[0] in effects)]
    assert not (passed and twice)
