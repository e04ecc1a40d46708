"""`agent.workflows` beside a pure model of it: two agents, whatever they do in whatever order."""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure import Agent, PerdureError
from perdure.errors import StepClaimed, StepNotReady, WorkflowChanged, WorkflowNotFound
from perdure.journal import rebuild
from perdure.store import open_store

PLANS: list[list[Any]] = [
    ["a", "b", "c"],
    ["x", "a", "b", "c"],  # one in front: all others have moved
    ["a", {"action": "b", "args": {"other": 1}}, "c"],
    [{"step": "p", "depends_on": []}, {"step": "q", "depends_on": "p"}, {"step": "r", "depends_on": []}],
    [{"step": "p", "depends_on": "r"}, {"step": 2, "action": "b", "depends_on": []}, {"step": "r", "depends_on": []}],
]
VERBS = {"start": "in_progress", "complete": "completed", "fail": "failed", "block": "blocked"} | {
    "skip": "skipped",
    "reset": "pending",
}
OVER = ("completed", "skipped")


class Step:
    """One step of the model."""

    def __init__(self, work: tuple[str, str], needs: list[str]) -> None:
        self.work, self.needs = work, needs
        self.status, self.result, self.holder, self.claim = "pending", None, "", 0


def plan_steps(steps: list[Any]) -> dict[str, Step]:
    full = [{"action": fields} if isinstance(fields, str) else fields for fields in steps]
    graph = any("depends_on" in fields for fields in full)
    found: dict[str, Step] = {}
    for place, step in enumerate(full, start=1):
        key, needs = str(step.get("step", place)), step.get("depends_on", [] if graph or place == 1 else str(place - 1))
        found[key] = Step(
            (step.get("action", key), repr(step.get("args"))), [needs] if isinstance(needs, str) else needs
        )
    return found


class Model:
    """What is expected."""

    def __init__(self) -> None:
        self.plan, self.version, self.claims = -1, 0, itertools.count(1)
        self.steps: dict[str, Step] = {}
        self.mine: dict[tuple[str, str], int] = {}
        """The claims that each agent believes to have, by step."""

    def create(self, number: int) -> None:
        if number == self.plan:
            return
        old, self.steps = self.steps, plan_steps(PLANS[number])
        self.plan, self.version = number, self.version + 1
        for same_key in (True, False):
            for key, step in self.steps.items():
                for other, before in list(old.items()):
                    moved = key.isdigit() and other.isdigit() and not same_key
                    if before.work == step.work and not step.__dict__.get("carried") and (other == key or moved):
                        step.__dict__.update(before.__dict__ | {"needs": step.needs, "carried": True})
                        del old[other]
                        break
        for step in self.steps.values():
            step.__dict__["carried"] = False

    def move(self, who: str, verb: str, key: str, result: Any) -> type[PerdureError] | None:
        """The error that it comes to, if any."""
        if key not in self.steps:
            return WorkflowNotFound
        claim = 0 if verb == "start" else self.mine.get((who, key), 0)
        step = next(
            (
                workflow_step
                for workflow_step in self.steps.values()
                if workflow_step.claim == claim and workflow_step.status == "in_progress"
            ),
            None,
        )
        step = step if claim and step is not None else self.steps[key]
        if claim and step.claim != claim:
            del self.mine[who, key]
            return WorkflowChanged if step.claim < claim else StepClaimed
        held = step.status == "in_progress"
        if held and (step.holder != who or verb == "start"):
            return StepClaimed
        if verb == "start" and (step.status in OVER or any(self.steps[name].status not in OVER for name in step.needs)):
            return StepNotReady
        if (verb in ("fail", "block") and step.status in OVER) or (verb == "skip" and step.status == "completed"):
            return StepNotReady
        self.mine = {place: number for place, number in self.mine.items() if number != step.claim}
        if verb == "start":
            step.claim = self.mine[who, key] = next(self.claims)
        step.result = result if verb == "complete" else None
        step.status, step.holder = VERBS[verb], who if verb == "start" else ""
        return None

    def list_ready(self) -> list[str]:
        free = {key for key, step in self.steps.items() if step.status == "pending"}
        return [
            k for k, step in self.steps.items() if k in free and all(self.steps[n].status in OVER for n in step.needs)
        ]


acts = st.one_of(
    st.tuples(st.just("plan"), st.integers(0, len(PLANS) - 1)),
    st.tuples(st.sampled_from("AB"), st.sampled_from(sorted(VERBS)), st.sampled_from([*"1234", *"pqr"]), st.integers()),
    st.tuples(st.sampled_from("AB"), st.sampled_from(["start", "complete"]), st.sampled_from("123"), st.integers()),
)


def play(store_url: str, name: str, story: list[tuple[Any, ...]]) -> None:
    agents = {who: Agent(f"{name}{who}", store=store_url) for who in "AB"}
    model = Model()
    for act in [("plan", 0), *story]:
        if act[0] == "plan":
            agents["A"].workflows.create("w", PLANS[act[1]])
            model.create(act[1])
        else:
            who, verb, key, value = act
            options = {"result": value} if verb == "complete" else {}
            call = getattr(agents[who].workflows.get("w", of=f"{name}A"), verb)
            expected = model.move(who, verb, key, value)
            with pytest.raises(expected) if expected is not None else nullcontext():
                call(key, **options)
        wf = agents["B"].workflows.get("w", of=f"{name}A")
        assert [(str(step.step), str(step.status), step.result) for step in wf.steps] == [
            (key, step.status, step.result) for key, step in model.steps.items()
        ]
        assert [str(step.step) for step in wf.ready_steps()] == model.list_ready()
    assert wf.version == model.version
    for agent in agents.values():
        agent.close()


def test_it_does_what_the_model_does(store_url: str) -> None:
    names = itertools.count()

    @settings(max_examples=20)
    @given(st.lists(acts, min_size=3, max_size=14))
    def each(story: list[tuple[Any, ...]]) -> None:
        play(store_url, f"agent {next(names)} ", story)

    each()
    store = open_store(store_url)
    assert rebuild.check(store) == []
    store.close()
