"""The brief of an agent: current work, decisions, open questions, effects in doubt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from perdure import records as r
from perdure.data.events.read import EventPages, EventQuery, EventReader, list_known_kinds
from perdure.data.events.schemas import EventKinds
from perdure.journal.retention_rules import OURS
from perdure.journal.trees.tolerant_read import tolerant
from perdure.presence.handoff import HandoffBrief, code, handoff_of, is_decision, progress_lines, value
from perdure.presence.handoff.gather import complete_progress
from perdure.presence.handoff.progress import Progress, ProgressUpdate, read_all_progress
from perdure.run.listing import RunSummary, list_runs
from perdure.run.usage import usage_lines, usage_of
from perdure.store.base import Store
from perdure.values.clock import moment_text
from perdure.work.workflows.read import WorkflowReader
from perdure.work.workflows.rendering import label

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

RUNS_TOLD = 5
"""How many runs of an agent are shown in full; the others get a line."""
TITLE = "# Handoff: "


def desk_of(engine: Engine) -> AgentHandoff:
    """Return the brief of the engine's agent."""
    engine.ensure_agent()
    return AgentHandoff(engine.store, engine.name, engine.stream)


class AgentHandoff:
    """A brief of an agent for whoever continues: a person, a process, a model. `str()` of it is Markdown.

    >>> print(agent.handoff())
    """

    def __init__(self, store: Store, agent: str, owner: int) -> None:
        self.store, self.agent, self.owner, self._unpack = store, agent, owner, tolerant(store)
        self.runs = list_runs(store, agent)
        self.left = [run for run in self.runs if not run.status.over]
        """The unfinished runs, last changed first."""
        begun = [run for run in self.left if run.stream]
        self.spoken = read_all_progress(store, agent, owner, [run.stream for run in begun])
        """By run, the progress reported by it and by people."""
        self.heard: set[str] = set()
        """The runs with a report that is not in the journal yet."""
        self.briefs: list[HandoffBrief] = [
            handoff_of(store, agent, run.id, unpack=self._unpack, progress=self.read_progress(run.id))
            for run in begun[:RUNS_TOLD]
        ]
        """The full briefs of the first unfinished runs."""

    def read_progress(self, run: str) -> Progress:
        """Return the reported progress of a run."""
        return self.spoken.get(run, Progress(run))

    def hear(self, said: Sequence[ProgressUpdate]) -> list[ProgressUpdate]:
        """Apply reports that are not in the journal yet. Returns those that change something."""
        news = list[ProgressUpdate]()
        for name, what in said:
            before = self.read_progress(name)
            self.spoken[name] = before.apply_report(what)
            news += [(name, what)] if self.spoken[name] != before else []
        self.heard |= {name for name, _ in news}
        self.briefs = [
            msgspec.structs.replace(handoff, progress=self.read_progress(handoff.summary.id)) for handoff in self.briefs
        ]
        return news

    def __repr__(self) -> str:
        return f"<AgentHandoff of {self.agent!r}: {len(self.left)} runs are not over>"

    def __str__(self) -> str:
        return self.markdown(self.store.clock.wall_ms())

    def markdown(self, at: int = 0) -> str:
        """Render the page of the agent and those of its unfinished runs.

        Without `at` it shows when something last happened, so that it stays the same while nothing does.
        """
        lines, as_of = [f"{TITLE}agent {code(self.agent)}"], at or self._read_last_time()
        lines += ["", f"As of {moment_text(as_of)}."] if as_of else []
        for title, part in (
            ("Doing", list(self._describe_unfinished()) or ["Nothing: no run is unfinished."]),
            ("In doubt", list(self._describe_in_doubt())),
            ("Pending", [*self._describe_pending(), *self._workflows()]),
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

    def _read_last_time(self) -> int:
        return max([0, *(run.changed_at for run in self.runs), *(brief.last_entry_at for brief in self.briefs)])

    def _describe_unfinished(self) -> Iterator[str]:
        """Yield every unfinished run: goal, blockers, next action."""
        known = {handoff.summary.id: complete_progress(handoff, handoff.progress) for handoff in self.briefs}
        for run in self.left:
            yield _line(run)
            yield from (f"  {line}" for line in progress_lines(known.get(run.id) or self.read_progress(run.id)))
        if own := progress_lines(self.spoken.get("", Progress())):
            yield from ("- the agent itself", *(f"  {line}" for line in own))

    def _describe_in_doubt(self) -> Iterator[str]:
        for brief in self.briefs:
            for effect in brief.in_doubt:
                yield f"- effect {code(effect.name)} of run {code(brief.summary.id)}, {value(effect.arguments)}"

    def _describe_pending(self) -> Iterator[str]:
        for brief in self.briefs:
            for question in brief.questions:
                yield f"- run {code(brief.summary.id)} waits: {question.kind} {code(question.text)}"

    def _workflows(self) -> Iterator[str]:
        reader = WorkflowReader(self.store, unpack=self._unpack)
        for plan in (reader.read_without_values(which) for which in reader.list_workflows(self.agent)):
            if left := plan.possible():
                yield f"- {code(plan.name)}: {plan.done} of {len(plan.steps)} steps done, next {code(label(left[0]))}"

    def _spaces(self) -> list[str]:
        rows = self.store.read("namespace_sizes", (self.owner, self.store.clock.wall_ms()))
        shown = [(name, keys) for name, _, keys, _ in rows if not name.startswith(OURS)]
        return [f"- {code(name)}: {keys} {'key' if keys == 1 else 'keys'}" for name, keys in shown]

    def _checkpoints(self) -> list[str]:
        newest: dict[str, tuple[int, int]] = {}
        for name, version, _, _, at in self.store.read("checkpoints_of", (self.owner,)):
            newest[name] = version, at
        lines = [f"- {code(name)}: version {version} of {moment_text(at)}" for name, (version, at) in newest.items()]
        return lines[-10:]

    def _decisions(self) -> list[str]:
        kinds = tuple(kind for kind in list_known_kinds(self.store, [self.owner]) if is_decision(kind))
        if not kinds:
            return []
        book = EventReader(self.store, self.owner, self.agent, EventKinds(), self._unpack)
        pages = EventPages(lambda: book, EventQuery(kinds, last=10, typed=False))
        found = [event for page in iter(pages.read_next_page, []) for event in page]
        return [
            f"- {event.at.isoformat(sep=' ', timespec='seconds')} {code(event.kind)}: {value(event.data)}"
            for event in found
        ]


def _line(run: RunSummary) -> str:
    error = f", {code(run.error)}" if run.error else ""
    by = f", by {code(run.holder)}" if run.holder and run.status == r.RunStatus.RUNNING else ""
    return f"- {code(run.id)}: {run.status}{error}{by}, since {moment_text(run.changed_at)}"
