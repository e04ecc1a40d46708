"""What resuming saves, beside a restart from zero that is counted by hand: random programs, killed and raised out of.

The program notes outside of Perdure what it asks for and what really runs. A restart from zero would have run again, in
each opening, whatever that opening came past and did not run itself; and that is what must have been credited.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure import Agent, records
from perdure.journal import rebuild
from perdure.platform import failpoints
from perdure.platform.failpoints import CommitMoment, Site

from .kit import agent_at, die, run_in_child

EXAMPLES = 15
MODELS = ("m1", "m2")
COUNTS = ("steps", "calls", "input_tokens", "output_tokens", "unpriced_calls", "nanos", "took_us")
Report = tuple[str, int, int, int | None]
"""Model, tokens in and out, and the cost in thousandths of a dollar."""
Call = tuple[str, tuple[Report, ...]]


class Raised(Exception):
    """The program's own."""


reports = st.lists(
    st.tuples(st.sampled_from(MODELS), st.integers(0, 900), st.integers(0, 90), st.none() | st.integers(0, 500)),
    max_size=2,
).map(tuple)
calls = st.tuples(st.sampled_from(("step", "effect")), reports)
pieces = st.one_of(calls, st.tuples(st.just("each"), st.lists(st.lists(calls, max_size=2), min_size=1, max_size=3)))
programs = st.lists(pieces, min_size=2, max_size=5)
PLACES = (
    Site.RUN_CLAIM,
    Site.CREDIT,
    Site.STEP_DONE,
    Site.STEP_FAILED,
    Site.EFFECT_INTENT,
    Site.EFFECT_AGAIN,
    Site.EFFECT_OUTCOME,
    Site.ITEM_DONE,
    Site.RUN_END,
)
ends = st.one_of(
    st.tuples(st.sampled_from(("die in", "raise in", "raise after")), st.integers(0, 12)),
    st.tuples(st.sampled_from(PLACES), st.sampled_from(list(CommitMoment)), st.integers(1, 3)),
)


class Story:
    """One program, opened again and again. Its calls are numbered, and so are the ends of its items."""

    def __init__(self, agent: str, store_url: str, program: list[Any], log: Path) -> None:
        self.name, self.url, self.program, self.log = agent, store_url, program, log
        self.calls: list[Call] = []
        for kind, content in program:
            if kind == "each":
                for item in content:
                    self.calls += [*item, ("item", (("item", 1, 0, 0),))]
            else:
                self.calls.append((kind, content))

    def note(self, *words: object) -> None:
        """Outlives this process."""
        with self.log.open("a") as file:
            print(*words, file=file)

    def open(self, end: tuple[Any, ...] = ("none",)) -> None:
        """From the top, until it ends as it is told to."""
        self.note("open")
        agent, self.end, self.at = agent_at(self.url, self.name), end, 0
        failpoints.arm(self._hook(end))
        try:
            with contextlib.suppress(Raised), agent.run("r") as self.run:
                for number, (kind, content) in enumerate(self.program):
                    if kind == "each":
                        self._loop(f"l{number}", content)
                    else:
                        self._call((kind, content))
        finally:
            failpoints.arm(None)
            agent.close()

    def _hook(self, end: tuple[Any, ...]) -> failpoints.FailpointHook:
        kill = failpoints.kill_at(f"{end[0]}:{end[1]}#{end[2]}") if isinstance(end[0], Site) else None

        def hook(site: Site, moment: CommitMoment) -> None:
            if moment is CommitMoment.AFTER and site is not Site.RUN_CLAIM and site in PLACES:
                self.note("durable")
            if kill is not None:
                kill(site, moment)

        return hook

    def _loop(self, name: str, items: list[list[Call]]) -> None:
        starts = list(itertools.accumulate((len(item) + 1 for item in items), initial=self.at))
        for index in self.run.each(range(len(items)), name=name):
            self.at = starts[index]
            self.note("came", self.at)
            self.note("ran", starts[index + 1] - 1)
            for call in items[index]:
                self._call(call)
            self.run.usage(model="item", input_tokens=1, cost_usd=0)
        self.at = starts[-1]
        self.note("came", self.at)

    def _call(self, call: Call) -> None:
        number, (kind, content) = self.at, call

        def body() -> int:
            self.note("ran", number)
            for model, tokens, made, cost in content:
                usd = None if cost is None else cost / 1000
                self.run.usage(model=model, input_tokens=tokens, output_tokens=made, cost_usd=usd)
            if self.end == ("die in", number):
                die()
            if self.end == ("raise in", number) and kind == "step":
                raise Raised
            return number

        self.note("came", number)
        does = self.run.step if kind == "step" else self.run.effect
        options = {} if kind == "step" else {"in_doubt": "retry"}
        assert does(body, name=f"c{number}", **options) == number
        self.at = number + 1
        self.note("came", self.at)
        if self.end == ("raise after", number):
            raise Raised

    def predict(self, took: dict[str, int]) -> dict[str, Counter[str]]:
        """What restarts from zero would have run again, by model."""
        saved: dict[str, Counter[str]] = {}
        for opening in self.log.read_text().split("open\n")[2:]:
            if "durable" not in opening:
                continue  # it came to nothing that could have been kept
            lines = [line.split() for line in opening.splitlines()]
            came, ran = [{int(line[1]) for line in lines if line[0] == word} for word in ("came", "ran")]
            for number in set(range(max(came, default=0))) - ran:
                for model, counts in _worth(self.calls[number], took.get(f"c{number}", 0)):
                    saved.setdefault(model, Counter()).update(counts)
        return {model: +counts for model, counts in saved.items()}


def _worth(call: Call, took_us: int) -> list[tuple[str, dict[str, int]]]:
    worth, steps = [], int(call[0] != "item")
    for model, tokens, made, cost in call[1] or (("", 0, 0, 0),):
        values = (steps, int(bool(model)), tokens, made, int(cost is None), (cost or 0) * 10**6, took_us * steps)
        worth.append((model, dict(zip(COUNTS, values, strict=True))))
        steps = 0
    return worth


def times(events: list[records.JournalEntry]) -> dict[str, int]:
    """How long each call took, as the journal has it."""
    intents = {e.seq: e.record.call.name for e in events if isinstance(e.record, records.EffectIntended)}
    took = {e.record.call.name: e.record.took_us for e in events if isinstance(e.record, records.StepDone)}
    done = [e.record for e in events if isinstance(e.record, records.EffectDone)]
    return took | {intents[record.intent]: record.took_us for record in done}


def read_credited(agent: Agent) -> dict[str, Counter[str]]:
    """What Perdure says."""
    return {
        model: +Counter(
            steps=totals.steps,
            calls=totals.calls,
            input_tokens=totals.input_tokens,
            output_tokens=totals.output_tokens,
            unpriced_calls=totals.unpriced_calls,
            nanos=round((totals.cost_usd or 0) * 10**9),
            took_us=round(totals.seconds * 10**6),
        )
        for model, totals in agent.savings().by_model.items()
    }


@pytest.mark.timeout(900)
def test_savings_equal_what_a_restart_from_zero_would_have_run_again(store_url: str, tmp_path: Path) -> None:
    names = itertools.count()

    @settings(max_examples=EXAMPLES)
    @given(programs, st.lists(ends, max_size=3))
    def play(program: list[Any], story: list[tuple[Any, ...]]) -> None:
        name = f"agent {next(names)}"
        item = Story(name, store_url, program, tmp_path / name)
        for end in story:
            run_in_child(lambda end=end: item.open(end))  # it may die, fail, or even finish
        item.open()
        agent = agent_at(store_url, name)
        info = agent.runs.get("r")
        assert info.finished
        assert read_credited(agent) == item.predict(times(info.events))
        before = agent.savings()
        item.open()
        assert agent.savings() == before, "reading a finished run saves nothing"
        agent.close()

    play()
    agent = agent_at(store_url)
    assert rebuild.check(agent._engine.store) == []
    agent.close()
