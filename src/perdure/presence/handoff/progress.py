"""Progress of runs, workflows and the agent, as reported with `run.progress` or by editing PROGRESS.md."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from perdure.data.events.append import note
from perdure.data.events.positions import BEGINNING, END
from perdure.data.events.read import EventReader
from perdure.data.events.schemas import EventKinds
from perdure.errors import WrongType
from perdure.journal.trees.tolerant_read import tolerant
from perdure.kernel.protocol import Protocol
from perdure.records import RunWrite, WriteOp
from perdure.records.orders import RunStatus
from perdure.run.core import RunCore
from perdure.run.listing import shown_runs
from perdure.store.base import Store
from perdure.store.rows import EventRow, read_run, read_runs
from perdure.values.limits import PROGRESS_ITEMS_MAX

KIND = "perdure:progress"
"""The kind of progress events."""
READ_MAX = 2000
"""How many of the newest events are read. Those of unfinished runs are always read."""
FLOW = "workflow "
"""The prefix of the names of workflows, to distinguish them from runs."""
ASKED_ONE_BY_ONE = 20
"""Up to this many runs are looked up by name; for more, all are read at once."""


class Progress(msgspec.Struct, frozen=True):
    """The progress of a run or workflow, or of the agent itself if `run` is empty. `str()` of it is Markdown."""

    run: str = ""
    goal: str = ""
    done: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    """What remains to do: the boxes that are not ticked."""
    blockers: tuple[str, ...] = ()
    next_action: str = ""
    context: str = ""
    status: str = ""
    """The status of the run: `finished`, `failed`, `waiting`, ...; empty if it is not a run."""

    def __str__(self) -> str:
        from perdure.presence.handoff.progress_text import render

        return render([self])

    def apply_report(self, said: Mapping[str, Any]) -> Progress:
        """Apply a report: named fields are replaced, completed items are added."""
        taken = set(_items(said.get("undone", ())))
        done = dict.fromkeys(one for one in (*self.done, *_items(said.get("done", ()))) if one not in taken)
        gone = {*done, *_items(said.get("dropped", ()))}
        left = dict.fromkeys(one for one in (*self.left, *_items(said.get("left", ()))) if one not in gone)
        new = {name: str(said[name]) for name in ("goal", "next_action", "context") if name in said}
        blockers = _items(said["blockers"]) if "blockers" in said else self.blockers
        anew = "blockers" in said or "next_action" in said
        return msgspec.structs.replace(
            self,
            done=tuple(done)[-PROGRESS_ITEMS_MAX:],
            left=tuple(left),  # written by people: never truncated
            blockers=blockers,
            status=str(said.get("status", "" if anew else self.status)),
            **new,
        )

    def apply_status(self, status: str) -> Progress:
        """Apply the current status. For a finished run, blockers and the next action are moved to the past.

        A report that carries the same `status` was made in knowledge of it, and stays.
        """
        if status == self.status or not is_over(status):
            return msgspec.structs.replace(self, status=str(status))
        nothing = f"nothing: run {self.run} is {status}"
        said = "" if self.next_action.startswith(nothing) else join_lines(self.next_action)
        past = f"{nothing}; before that it had said: {said}" if said else self.next_action
        return msgspec.structs.replace(self, blockers=(), next_action=past, status=str(status))


def is_over(status: str) -> bool:
    """Return whether a status is final. Only runs have a status."""
    return status in [item for item in RunStatus if item.over]


ProgressUpdate = tuple[str, dict[str, Any]]
"""The name of a run or workflow, and the report about it."""


def validate_report(
    goal: str | None,
    done: str | Iterable[str] | None,
    blockers: str | Iterable[str] | None,
    next_action: str | None,
    context: str | None,
) -> dict[str, Any]:
    """Validate the arguments of `run.progress`. None leaves a field as it is."""
    found: dict[str, Any] = {}
    for name, text in (("goal", goal), ("next_action", next_action), ("context", context)):
        if text is not None and not isinstance(text, str):
            raise WrongType(f"{name}= is a text, not {text!r}")
        found |= {} if text is None else {name: text}
    for name, given in (("done", done), ("blockers", blockers)):
        if given is not None:
            items = [given] if isinstance(given, str) or not hasattr(given, "__iter__") else list(given)
            if not all(isinstance(one, str) for one in items):
                raise WrongType(f"{name}= is a text or several, not {given!r}")
            found[name] = [one for one in items if one]
    if not found:
        raise WrongType("give at least one of goal=, done=, blockers=, next_action= and context=")
    return found


def report(run: RunCore, what: Mapping[str, Any]) -> Protocol[bool]:
    """`run.progress`: a recorded operation of the run. Returns False when a resumed run only repeats it."""
    before = run.head.seq
    yield from note(run, KIND, dict(what))
    return run.head.seq != before


def find_done(run: RunCore, writes: Iterable[RunWrite]) -> list[str] | None:
    """Return what `run.progress` reported as done among the writes of an item; None if it was not called there."""
    said = [run.unpack(write.value) for write in writes if write.op == WriteOp.EVENT and write.key == KIND]
    return [done for one in said for done in one.get("done", ())] if said else None


# -- reports ----------------------------------------------------------------------------------------------------------


def read_all_progress(store: Store, agent: str, owner: int, runs: Sequence[int] = ()) -> dict[str, Progress]:
    """Return the reported progress by run. For the streams in `runs`, reports of any age count."""
    book = EventReader(store, owner, agent, EventKinds(), tolerant(store))
    rows = book.rows((KIND,), 0, BEGINNING, END, READ_MAX, newest=True)
    if len(rows) == READ_MAX:
        rows = _add_older(book, rows, runs)
    found: dict[str, Progress] = {}
    for event in book.events(rows, typed=False):
        if isinstance(event.data, dict):
            what = str(event.data.get("run", event.run or ""))
            found[what] = found.get(what, Progress(what)).apply_report(event.data)
    statuses = _statuses(store, agent, found)
    return {what: progress.apply_status(statuses.get(what, "")) for what, progress in found.items()}


def _statuses(store: Store, agent: str, names: Collection[str]) -> dict[str, str]:
    """Return the recorded statuses of those names that are runs. A crashed run has recorded none."""
    if len(names) > ASKED_ONE_BY_ONE:
        found = [run for run in read_runs(store) if run.agent == agent]
    else:
        found = [run for name in names if (run := read_run(store, agent, name)) is not None]
    return {run.id: run.status for run in shown_runs(found)}


def _add_older(book: EventReader, rows: Sequence[EventRow], runs: Sequence[int]) -> list[EventRow]:
    """Add older reports of some runs, in order."""
    older = [row for run in runs for row in book.rows((KIND,), run, BEGINNING, END, READ_MAX, newest=True)]
    return [row for _, row in sorted({row.position: row for row in (*rows, *older)}.items())]


def _items(given: Any) -> tuple[str, ...]:
    """Put each item on one line, as a list shows it, so that a ticked box is recognized."""
    return tuple(join_lines(str(one)) for one in ((given,) if isinstance(given, str) else given))


def join_lines(text: str) -> str:
    """Return a text as one line."""
    return " ".join(text.split())
