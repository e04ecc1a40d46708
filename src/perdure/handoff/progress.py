"""How far something is: what was said with `run.progress`, or by editing PROGRESS.md."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from ..events.positions import BEGINNING, END
from ..events.reading import Book
from ..events.schemas import Kinds
from ..events.writing import note
from ..limits import PROGRESS_ITEMS_MAX
from ..order_records import Status
from ..run.core import RunCore
from ..run.requests import Protocol
from ..store.base import Row, Store
from ..trees.tolerant import tolerant

KIND = "perdure:progress"
"""The kind of the events that say how far something is."""
READ_MAX = 2000
"""So many of the newest of them are read; of a run that is not over, its own ones too."""
FLOW = "workflow "
"""How the name of a workflow begins where others are runs."""
ASKED_ONE_BY_ONE = 20
"""So many runs are looked up by their names; of more of them, all are read at once."""


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
    status: str = ""
    """Where the run is: `finished`, `failed`, `waiting`; of what is no run, empty."""

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
        anew = "blockers" in said or "next_action" in said
        return msgspec.structs.replace(
            self,
            done=tuple(done)[-PROGRESS_ITEMS_MAX:],
            left=tuple(left),  # people have written them down, and none is dropped
            blockers=blockers,
            status=str(said.get("status", "" if anew else self.status)),
            **new,
        )

    def standing(self, status: str) -> Progress:
        """The same of a run that is there now: when it is over, what blocked it and what came next is past.

        Who says so of a run that he knows to be over (`status` is with what he says) means it: that stays.
        """
        if status == self.status or not is_over(status):
            return msgspec.structs.replace(self, status=str(status))
        nothing = f"nothing: run {self.run} is {status}"
        said = "" if self.next_action.startswith(nothing) else one_line(self.next_action)
        past = f"{nothing}; before that it had said: {said}" if said else self.next_action
        return msgspec.structs.replace(self, blockers=(), next_action=past, status=str(status))


def is_over(status: str) -> bool:
    """Of a run; what is none has no status, and is not."""
    return status in [it for it in Status if it.over]


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
            items = [given] if isinstance(given, str) or not hasattr(given, "__iter__") else list(given)
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


def all_said(store: Store, agent: str, owner: int, runs: Sequence[int] = ()) -> dict[str, Progress]:
    """By run, what was said of it; of these runs, by stream, however long ago that was."""
    book = Book(store, owner, agent, Kinds(), tolerant(store))
    rows = book.rows((KIND,), 0, BEGINNING, END, READ_MAX, newest=True)
    if len(rows) == READ_MAX:
        rows = _with_older(book, rows, runs)
    found: dict[str, Progress] = {}
    for event in book.events(rows, typed=False):
        if isinstance(event.data, dict):
            what = str(event.data.get("run", event.run or ""))
            found[what] = found.get(what, Progress(what)).changed(event.data)
    statuses = _statuses(store, agent, found)
    return {what: it.standing(statuses.get(what, "")) for what, it in found.items()}


def _statuses(store: Store, agent: str, names: Collection[str]) -> dict[str, str]:
    """Where those of them are that are runs, as they have told; who has died has told nothing."""
    if len(names) > ASKED_ONE_BY_ONE:
        rows = [row for row in store.read("all_runs") if row[1] == agent]
    else:
        rows = [row for name in names for row in store.read("get_run", (agent, name))]
    return {row[2]: row[3] for row in rows}


def _with_older(book: Book, rows: Sequence[Row], runs: Sequence[int]) -> list[Row]:
    """What some runs have said before the rest, in order."""
    older = [row for run in runs for row in book.rows((KIND,), run, BEGINNING, END, READ_MAX, newest=True)]
    return sorted({row[:4]: row for row in (*rows, *older)}.values(), key=lambda row: row[:4])


def _items(given: Any) -> tuple[str, ...]:
    """Each in one line, as a list shows them: what somebody ticks there is found again."""
    return tuple(one_line(str(one)) for one in ((given,) if isinstance(given, str) else given))


def one_line(text: str) -> str:
    """A text as an item of a list."""
    return " ".join(text.split())
