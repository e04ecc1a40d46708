"""`perdure handoff RUN`: a brief in Markdown for whoever goes on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from ..clock import moment_text
from ..events.reading import Asked, Book, Pages, known_kinds
from ..events.schemas import Kinds
from ..handoff import Handoff, code, handoff_of, is_decision, value
from ..journal.keeping import OURS
from ..runs import RunSummary, list_runs
from ..usage import usage_lines, usage_of
from ..workflows.reading import Reader
from ..workflows.shown import label
from .completed import completed_runs
from .output import Output, clean, counted, when
from .stores import agent_option, common, existing_store, one_agent, one_run, tolerant

if TYPE_CHECKING:
    from ..store.base import Store

RUNS_TOLD = 5
"""Runs of an agent that are told in full; of the others there is a line."""
TITLE = "# Handoff: "


@click.command()
@click.argument("run", required=False, shell_complete=completed_runs)
@agent_option
@click.option("--output", "path", metavar="FILE", type=click.Path(dir_okay=False), help="Write it there.")
@common
def handoff(run: str | None, agent: str | None, path: str | None, url: str | None, as_json: bool) -> int:
    """Write a brief for whoever goes on with a run: a person, a process, a model.

    What was asked, what is done, in doubt, waited for and decided, state, last messages, cost, and how to go on.

    Without RUN it is about all that an agent has left to do. FILE may replace an older brief, and nothing else.
    """
    out = Output(as_json)
    with existing_store(url) as store:
        if run is not None:
            found = one_run(store, run, agent)
            brief = handoff_of(store, found.agent, found.id, unpack=tolerant(store))
            told, page = _as_json(brief), brief.markdown()
        else:
            meant = one_agent(store, agent)
            if meant is None:
                raise click.UsageError("there is no agent in this store yet: nothing to hand over")
            desk = Desk(store, *meant)
            told, page = desk.as_json(), desk.markdown()
    page = "\n".join(map(clean, page.splitlines())) + "\n"
    if path is not None:
        _write(Path(path), page)
    if as_json:
        out.json(told)
    elif path is not None:
        out.line(clean(f"wrote {path}"))
    else:
        print(page, end="")
    return 0


def _write(path: Path, page: str) -> None:
    """As a whole or not at all; in place of an older brief only."""
    if path.exists() and not path.read_text("utf-8", errors="replace").startswith(TITLE):
        raise click.UsageError(f"{path} is no brief of ours, and stays as it is; name another FILE")
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_text(page, "utf-8")
    os.replace(aside, path)


class Desk:
    """All that an agent has left to do."""

    def __init__(self, store: Store, agent: str, owner: int) -> None:
        self._store, self.agent, self._owner = store, agent, owner
        self._runs = list_runs(store, agent)
        self._left = [run for run in self._runs if not run.status.over]
        self._briefs = [handoff_of(store, agent, run.id, unpack=tolerant(store)) for run in self._left[:RUNS_TOLD]]

    def markdown(self) -> str:
        """The page of the agent, and those of the runs that it has not finished."""
        lines = [f"{TITLE}agent {code(self.agent)}", "", f"As of {moment_text(self._store.clock.wall_ms())}."]
        lines += ["", "## Runs that are not finished", "", *(map(_line, self._left) if self._left else ["None."])]
        lines += [f"{len(self._runs) - len(self._left)} more are over."]
        for title, part in (
            ("Workflows", self._workflows()),
            ("State of the agent", self._spaces()),
            ("Checkpoints", self._checkpoints()),
            ("Decisions", self._decisions()),
        ):
            lines += ["", f"## {title}", "", *part] if part else []
        usage = usage_of(usage_lines(self._store, self.agent))
        lines += ["", "## Cost", "", str(usage)] if usage.calls else []
        return "\n".join([*lines, *(f"\n{brief.markdown(2)}".rstrip() for brief in self._briefs)]) + "\n"

    def as_json(self) -> dict[str, Any]:
        """The same for programs."""
        return {
            "agent": self.agent,
            "left": [run.id for run in self._left],
            "runs": [_as_json(it) for it in self._briefs],
        }

    def _workflows(self) -> list[str]:
        reader = Reader(self._store, unpack=tolerant(self._store))
        plans = [reader.bare(which) for which in reader.listed(self.agent)]
        return [
            f"- {code(plan.name)}: {plan.done} of {len(plan.steps)} steps done, next {code(label(left[0]))}"
            for plan in plans
            if (left := plan.possible())
        ]

    def _spaces(self) -> list[str]:
        rows = self._store.read("spaces_in_use", (self._owner, self._store.clock.wall_ms()))
        return [f"- {code(name)}: {counted(keys, 'key')}" for name, _, keys, _ in rows if not name.startswith(OURS)]

    def _checkpoints(self) -> list[str]:
        newest: dict[str, tuple[int, int]] = {}
        for name, version, _, _, at in self._store.read("checkpoints_of", (self._owner,)):
            newest[name] = version, at
        lines = [f"- {code(name)}: version {version} of {moment_text(at)}" for name, (version, at) in newest.items()]
        return lines[-10:]

    def _decisions(self) -> list[str]:
        kinds = tuple(kind for kind in known_kinds(self._store, [self._owner]) if is_decision(kind))
        if not kinds:
            return []
        book = Book(self._store, self._owner, self.agent, Kinds(), tolerant(self._store))
        pages = Pages(lambda: book, Asked(kinds, last=10, typed=False))
        found = [event for page in iter(pages.turn, []) for event in page]
        return [
            f"- {event.at.isoformat(sep=' ', timespec='seconds')} {code(event.kind)}: {value(event.data)}"
            for event in found
        ]


def _line(run: RunSummary) -> str:
    error = f", {code(run.error)}" if run.error else ""
    return f"- {code(run.id)}: {run.status}{error}, since {moment_text(run.changed_at)}"


def _as_json(brief: Handoff) -> dict[str, Any]:
    run = brief.summary
    return {
        "id": run.id,
        "agent": run.agent,
        "status": run.status.value,
        "store": brief.store,
        "at": when(brief.at),
        "last_entry_at": when(brief.last_entry_at),
        "error": run.error,
        "input": brief.input,
        "result": brief.result,
        "counts": brief.counts,
        "items": brief.items,
        "done": [msgspec.structs.asdict(one) for one in brief.done],
        "in_doubt": [{"name": it.name, "key": it.key, "arguments": it.arguments} for it in brief.in_doubt],
        "questions": [{"kind": it.kind, "text": it.text, "choices": it.choices} for it in brief.questions],
        "state": brief.state,
        "messages": brief.messages,
        "decisions": [{"kind": it.kind, "payload": it.payload, "at": when(it.at)} for it in brief.decisions],
        "children": [{"id": it.id, "agent": it.agent, "status": it.status.value} for it in brief.children],
        "cost_usd": brief.usage.cost_usd,
        "markdown": brief.markdown(),
    }
