"""How far something is: what was said with `run.progress`, and what steps and workflows tell by themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from .. import records as r
from ..events.reading import Asked, Book, Pages
from ..events.schemas import Kinds
from ..events.writing import note
from ..handoff import Handoff, handoff_of
from ..limits import PROGRESS_ITEMS_MAX
from ..records import StepStatus
from ..run.core import RunCore
from ..run.requests import Protocol
from ..runs import list_runs
from ..store.base import Store
from ..trees.tolerant import tolerant
from ..workflows.plan import Plan
from ..workflows.reading import Reader
from ..workflows.shown import label

if TYPE_CHECKING:
    from ..engine import Engine
    from ..handoff.desk import AgentHandoff

KIND = "perdure:progress"
"""The kind of the events that say how far something is."""
READ_MAX = 2000
"""So many of the newest of them are read."""
SHORT = 200
"""Characters of an input that stands in for a goal, and of an error that blocks."""
FLOW = "workflow "
"""How the name of a workflow begins where others are runs."""


class Progress(msgspec.Struct, frozen=True):
    """How far a run is, or a workflow, or the agent itself, whose `run` is empty. `str()` of it is Markdown."""

    run: str = ""
    goal: str = ""
    done: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    """What is known to come; the boxes that are not ticked."""
    blockers: tuple[str, ...] = ()
    next_action: str = ""
    context: str = ""

    def __str__(self) -> str:
        from .progress_text import render

        return render([self])

    def changed(self, said: Mapping[str, Any]) -> Progress:
        """The same after something was said: what is named replaces what was there, and what is done is added."""
        taken = set(_items(said.get("undone", ())))
        done = dict.fromkeys(one for one in (*self.done, *_items(said.get("done", ()))) if one not in taken)
        gone = {*done, *_items(said.get("dropped", ()))}
        left = dict.fromkeys(one for one in (*self.left, *_items(said.get("left", ()))) if one not in gone)
        new = {name: str(said[name]) for name in ("goal", "next_action", "context") if name in said}
        blockers = _items(said["blockers"]) if "blockers" in said else self.blockers
        return msgspec.structs.replace(
            self,
            done=tuple(done)[-PROGRESS_ITEMS_MAX:],
            left=tuple(left)[:PROGRESS_ITEMS_MAX],
            blockers=blockers,
            **new,
        )


Said = tuple[str, dict[str, Any]]
"""Of what, and what was said of it."""


def said(
    goal: str | None,
    done: str | Iterable[str] | None,
    blockers: str | Iterable[str] | None,
    next_action: str | None,
    context: str | None,
) -> dict[str, Any]:
    """What somebody says, checked at the call. What is None stays as it is."""
    found: dict[str, Any] = {}
    for name, text in (("goal", goal), ("next_action", next_action), ("context", context)):
        if text is not None and not isinstance(text, str):
            raise TypeError(f"{name}= is a text, not {text!r}")
        found |= {} if text is None else {name: text}
    for name, given in (("done", done), ("blockers", blockers)):
        if given is not None:
            items = [given] if isinstance(given, str) else list(given)
            if not all(isinstance(one, str) for one in items):
                raise TypeError(f"{name}= is a text or several, not {given!r}")
            found[name] = [one for one in items if one]
    if not found:
        raise TypeError("say something: goal=, done=, blockers=, next_action= or context=")
    return found


def report(run: RunCore, what: Mapping[str, Any]) -> Protocol[None]:
    """`run.progress`: a recorded operation of the run, which is not done again when the run is resumed."""
    yield from note(run, KIND, dict(what))


# -- what was said ----------------------------------------------------------------------------------------------------


def all_said(store: Store, agent: str, owner: int) -> dict[str, Progress]:
    """By run, what was said of it."""
    book = Book(store, owner, agent, Kinds(), tolerant(store))
    pages = Pages(lambda: book, Asked((KIND,), last=READ_MAX, typed=False))
    found: dict[str, Progress] = {}
    for event in (event for page in iter(pages.turn, []) for event in page):
        if isinstance(event.data, dict):
            what = str(event.data.get("run", event.run or ""))
            found[what] = found.get(what, Progress(what)).changed(event.data)
    return found


# -- what is known ----------------------------------------------------------------------------------------------------


def gather(desk: AgentHandoff, also: Sequence[Said] = ()) -> list[Progress]:
    """How far everything is that an agent has begun: the agent itself, its runs, its workflows."""
    store, spoken = desk.store, all_said(desk.store, desk.agent, desk.owner)
    for name, what in also:
        spoken[name] = spoken.get(name, Progress(name)).changed(what)
    plans = list(_plans(store, desk.agent))
    steps = {step.run for plan in plans for step in plan.steps}
    briefs = [brief for brief in desk.briefs if not brief.summary.parent and brief.summary.id not in steps]
    briefs = briefs or list(_last(store, desk.agent, steps))
    own = spoken.get("", Progress())
    return [
        *([own] if own != Progress() else []),
        *(of_run(brief, spoken.get(brief.summary.id, Progress(brief.summary.id))) for brief in briefs),
        *(_of_plan(plan, spoken.get(FLOW + plan.name)) for plan in plans if plan.status != StepStatus.COMPLETED),
    ]


def progress_of(engine: Engine, run: str) -> Progress:
    """How far one run is."""
    brief = handoff_of(engine.store, engine.name, run, unpack=tolerant(engine.store))
    return of_run(brief, all_said(engine.store, engine.name, engine.stream).get(run, Progress(run)))


def of_run(brief: Handoff, spoken: Progress) -> Progress:
    """What was said of a run, and for the rest what its journal tells."""
    known = {one.partition(" (")[0] for one in spoken.done}
    auto = [_counted(name, count) for name, count in brief.counts.items() if name not in known]
    return msgspec.structs.replace(
        spoken,
        goal=spoken.goal or _goal(brief),
        done=(*spoken.done, *(one for one in auto if one not in spoken.done)),
        blockers=spoken.blockers or tuple(_blockers(brief)),
        next_action=spoken.next_action or _next(brief),
    )


def _counted(name: str, count: int) -> str:
    return f"{name} ({count} times)" if count > 1 else name


def _goal(brief: Handoff) -> str:
    given = brief.input
    if isinstance(given, Mapping):
        given = next((given[key] for key in ("goal", "task", "question", "prompt") if key in given), given)
    text = given if isinstance(given, str) else "" if given is None else repr(given)
    return _short(text) or f"run {brief.summary.id}"


def _blockers(brief: Handoff) -> Iterator[str]:
    for effect in brief.in_doubt:
        yield f"effect {effect.name} is in doubt: find out whether it happened"
    for question in brief.questions:
        yield _short(f"waits: {question.kind} {question.text}")
    if brief.summary.error and brief.summary.status == r.Status.FAILED:
        yield _short(f"failed: {brief.summary.error}")


def _next(brief: Handoff) -> str:
    run = brief.summary
    if run.status in (r.Status.FINISHED, r.Status.CANCELLED):
        return f"nothing: run {run.id} is {run.status}"
    if run.status == r.Status.RUNNING:
        return f"run {run.id} is at work"
    return f"start the program that opens run {run.id}: it goes on where it was"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHORT else line[: SHORT - 1] + "…"


def _plans(store: Store, agent: str) -> Iterator[Plan]:
    reader = Reader(store, unpack=tolerant(store))
    yield from (reader.bare(which) for which in reader.listed(agent))


def _of_plan(plan: Plan, spoken: Progress | None) -> Progress:
    stuck = [it for it in plan.steps if it.status in (StepStatus.BLOCKED, StepStatus.FAILED)]
    possible = plan.possible()
    own = Progress(
        FLOW + plan.name,
        goal=f"workflow {plan.name}, version {plan.version}",
        done=tuple(label(it) for it in plan.steps if it.done),
        left=tuple(label(it) for it in plan.steps if not it.done),
        blockers=tuple(_short(f"{label(it)}: {it.status}{f', {it.note}' if it.note else ''}") for it in stuck),
        next_action=label(possible[0]) if possible else "",
    )
    if spoken is None:
        return own
    fields = {name: getattr(spoken, name) for name in ("goal", "next_action", "context") if getattr(spoken, name)}
    return own.changed({**fields, "done": spoken.done, "blockers": spoken.blockers or own.blockers})


def _last(store: Store, agent: str, steps: set[str]) -> Iterator[Handoff]:
    """When nothing is left to do, what was done last."""
    for run in list_runs(store, agent):
        if run.stream and not run.parent and run.id not in steps:
            yield handoff_of(store, agent, run.id, unpack=tolerant(store))
            return


def _items(given: Any) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(map(str, given))
