"""All that an agent has left to do: what it was doing, what it decided and why, what is pending, what is in doubt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from .. import records as r
from ..clock import moment_text
from ..events.reading import Asked, Book, Pages, known_kinds
from ..events.schemas import Kinds
from ..journal.keeping import OURS
from ..runs import RunSummary, list_runs
from ..store.base import Store
from ..trees.tolerant import tolerant
from ..usage import usage_lines, usage_of
from ..workflows.reading import Reader
from ..workflows.shown import label
from . import Handoff, code, handoff_of, is_decision, told, value
from .gathering import of_run
from .progress import Progress, Said, all_said

if TYPE_CHECKING:
    from ..engine import Engine

RUNS_TOLD = 5
"""Runs of an agent that are told in full; of the others there is a line."""
TITLE = "# Handoff: "


def desk_of(engine: Engine) -> AgentHandoff:
    """That of an agent that is at work here."""
    engine.ensure_agent()
    return AgentHandoff(engine.store, engine.name, engine.stream)


class AgentHandoff:
    """A brief of an agent, for whoever goes on: a person, a process, a model. `str()` of it is Markdown.

    >>> print(agent.handoff())
    """

    def __init__(self, store: Store, agent: str, owner: int) -> None:
        self.store, self.agent, self.owner, self._unpack = store, agent, owner, tolerant(store)
        self.runs = list_runs(store, agent)
        self.left = [run for run in self.runs if not run.status.over]
        """The runs that are not over, the one that changed last first."""
        begun = [run for run in self.left if run.stream]
        self.spoken = all_said(store, agent, owner, [run.stream for run in begun])
        """By run, how far it is by its own words and those of people."""
        self.heard: set[str] = set()
        """Of what somebody has just said something."""
        self.briefs: list[Handoff] = [
            handoff_of(store, agent, run.id, unpack=self._unpack, progress=self.said_of(run.id))
            for run in begun[:RUNS_TOLD]
        ]
        """Of the first of them all that is known."""

    def said_of(self, run: str) -> Progress:
        """How far a run is, as far as anybody has said so."""
        return self.spoken.get(run, Progress(run))

    def hear(self, said: Sequence[Said]) -> list[Said]:
        """Take into account what somebody has said that is not in the journal yet; returns what is news."""
        news = list[Said]()
        for name, what in said:
            before = self.said_of(name)
            self.spoken[name] = before.changed(what)
            news += [(name, what)] if self.spoken[name] != before else []
        self.heard |= {name for name, _ in news}
        self.briefs = [msgspec.structs.replace(it, progress=self.said_of(it.summary.id)) for it in self.briefs]
        return news

    def __repr__(self) -> str:
        return f"<AgentHandoff of {self.agent!r}: {len(self.left)} runs are not over>"

    def __str__(self) -> str:
        return self.markdown(self.store.clock.wall_ms())

    def markdown(self, at: int = 0) -> str:
        """The page of the agent, and those of the runs that it has not finished.

        Without a time `at` it says when something last happened, so that it stays the same while nothing does.
        """
        lines, as_of = [f"{TITLE}agent {code(self.agent)}"], at or self._last_at()
        lines += ["", f"As of {moment_text(as_of)}."] if as_of else []
        for title, part in (
            ("Doing", list(self._doing()) or ["Nothing: no run is unfinished."]),
            ("In doubt", list(self._in_doubt())),
            ("Pending", [*self._pending(), *self._workflows()]),
            ("Decided", self._decisions()),
            ("State of the agent", self._spaces()),
            ("Checkpoints", self._checkpoints()),
        ):
            lines += ["", f"## {title}", "", *part] if part else []
        over = len(self.runs) - len(self.left)
        lines += ["", f"{over} more {'run is' if over == 1 else 'runs are'} over."] if over else []
        usage = usage_of(usage_lines(self.store, self.agent))
        lines += ["", "## Cost", "", str(usage)] if usage.calls else []
        return "\n".join([*lines, *(f"\n{brief.markdown(2, at)}".rstrip() for brief in self.briefs)]) + "\n"

    def _last_at(self) -> int:
        return max([0, *(run.changed_at for run in self.runs), *(brief.last_entry_at for brief in self.briefs)])

    def _doing(self) -> Iterator[str]:
        """Every run that is not over: what it is for, what keeps it, what comes next."""
        known = {it.summary.id: of_run(it, it.progress) for it in self.briefs}
        for run in self.left:
            yield _line(run)
            yield from (f"  {line}" for line in told(known.get(run.id) or self.said_of(run.id)))
        if own := told(self.spoken.get("", Progress())):
            yield from ("- the agent itself", *(f"  {line}" for line in own))

    def _in_doubt(self) -> Iterator[str]:
        for brief in self.briefs:
            for effect in brief.in_doubt:
                yield f"- effect {code(effect.name)} of run {code(brief.summary.id)}, {value(effect.arguments)}"

    def _pending(self) -> Iterator[str]:
        for brief in self.briefs:
            for question in brief.questions:
                yield f"- run {code(brief.summary.id)} waits: {question.kind} {code(question.text)}"

    def _workflows(self) -> Iterator[str]:
        reader = Reader(self.store, unpack=self._unpack)
        for plan in (reader.bare(which) for which in reader.listed(self.agent)):
            if left := plan.possible():
                yield f"- {code(plan.name)}: {plan.done} of {len(plan.steps)} steps done, next {code(label(left[0]))}"

    def _spaces(self) -> list[str]:
        rows = self.store.read("spaces_in_use", (self.owner, self.store.clock.wall_ms()))
        shown = [(name, keys) for name, _, keys, _ in rows if not name.startswith(OURS)]
        return [f"- {code(name)}: {keys} {'key' if keys == 1 else 'keys'}" for name, keys in shown]

    def _checkpoints(self) -> list[str]:
        newest: dict[str, tuple[int, int]] = {}
        for name, version, _, _, at in self.store.read("checkpoints_of", (self.owner,)):
            newest[name] = version, at
        lines = [f"- {code(name)}: version {version} of {moment_text(at)}" for name, (version, at) in newest.items()]
        return lines[-10:]

    def _decisions(self) -> list[str]:
        kinds = tuple(kind for kind in known_kinds(self.store, [self.owner]) if is_decision(kind))
        if not kinds:
            return []
        book = Book(self.store, self.owner, self.agent, Kinds(), self._unpack)
        pages = Pages(lambda: book, Asked(kinds, last=10, typed=False))
        found = [event for page in iter(pages.turn, []) for event in page]
        return [
            f"- {event.at.isoformat(sep=' ', timespec='seconds')} {code(event.kind)}: {value(event.data)}"
            for event in found
        ]


def _line(run: RunSummary) -> str:
    error = f", {code(run.error)}" if run.error else ""
    by = f", by {code(run.holder)}" if run.holder and run.status == r.Status.RUNNING else ""
    return f"- {code(run.id)}: {run.status}{error}{by}, since {moment_text(run.changed_at)}"
