"""Erasing a text wherever else it stands, as far as nobody needs what it stands in to go on.

An entry is erased as a whole, or not at all. So what a run at work needs stays, what proves that the world was changed
stays, and an entry in which something else was written too stays: each is listed with the reason, and what to do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from .. import objects
from .. import records as r
from ..journal.keeping import DOCUMENTS
from ..journal.landing import Ask
from .archived import is_one_of, lines_of, without
from .reliance import Reliance
from .traces import SUFFIX, Looking, Trace

if TYPE_CHECKING:
    from ..engine import Engine

_WHOLE = (
    r.StepDone,
    r.StepFailed,
    r.AttemptFailed,
    r.ItemDone,
    r.Wrote,
    r.RunFailed,
    r.RunInterrupted,
    r.RunFinished,
)
"""Entries of a run that nobody needs once it is over: without them it can be read, but not replayed. That it has
finished is seen without the body of the last one."""


class Elsewhere(msgspec.Struct, frozen=True):
    """What is to be done to the other places."""

    erased: tuple[Trace, ...] = ()
    left: tuple[Trace, ...] = ()
    first: tuple[Ask, ...] = ()
    """Keys of state that were written with it. Those that have the text are deleted, so that their versions go on; the
    others are written once more as they are, so that they do not go with the entry."""
    notes: tuple[str, ...] = ()
    """What goes with an entry although it does not have the text."""
    relied_on: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """The runs by which it was told that nobody needs the others, and their forks."""


def elsewhere(engine: Engine, looking: Looking, found: Iterable[tuple[Trace, r.Record]]) -> Elsewhere:
    """Sort the other places of a text."""
    sorting = _Sorting(engine, looking)
    for trace, record in found:
        sorting.take(trace, record)
    return sorting.outcome()


class _Owners:
    """Whose an entry is: agents share a store, and none erases what another has."""

    def __init__(self, engine: Engine, looking: Looking) -> None:
        self._own = engine.name
        self._agents = {stream: name for name, stream, *_ in engine.store.read("all_agents")}
        self._agent_of = looking.agent_of

    def another(self, stream: int, record: r.Record) -> str:
        """The name of the other agent that has it; empty for what is this one's."""
        whose = self._agent_of(stream) or self._agents.get(stream)
        parts = (record, *getattr(record, "landed", ()))
        names = [whose] if whose else [self._agents.get(getattr(it, "owner", 0)) for it in parts]
        return next((name for name in names if name and name != self._own), "")


class _Sorting:
    """Goes through the places one by one."""

    def __init__(self, engine: Engine, looking: Looking) -> None:
        store = engine.store
        self._engine = engine
        self._looking = looking
        self._owners = _Owners(engine, looking)
        self._reliance = Reliance(store)
        self._dropped = objects.Drops(store)
        self._folded = {stream for (stream, *_) in store.read("all_streams") if store.read("last_folded", (stream,))}
        self._erased, self._left = dict[Trace, None](), dict[Trace, None]()
        self._first: dict[tuple[int, str, str], Ask] = {}
        self._notes: dict[tuple[int, int], str] = {}

    def take(self, trace: Trace, record: r.Record) -> None:
        """One more."""
        why = self._why_not(trace, record)
        if why:
            self._left[msgspec.structs.replace(trace, left=why)] = None
            return
        self._erased[trace] = None
        self._notes[trace.entry] = self._lost(trace, record)
        for it in getattr(record, "landed", ()):
            if isinstance(it, r.StateChange) and it.value:
                place = (it.owner, it.space, it.key)
                if self._is_current(place):
                    self._first[place] = Ask(place)
                else:
                    self._first.setdefault(place, Ask(place, touches=it.version, expires=it.expires))

    def outcome(self) -> Elsewhere:
        """All of them."""
        told = tuple(note for note in self._notes.values() if note)
        relied_on = tuple(sorted(self._reliance.relied_on.items()))
        return Elsewhere(tuple(self._erased), tuple(self._left), tuple(self._first.values()), told, relied_on)

    def _lost(self, trace: Trace, record: r.Record) -> str:
        """What a run had noted in an entry beside the text: it belongs to the entry, and is not written once more."""
        events = [it for it in getattr(record, "landed", ()) if isinstance(it, r.Happened)]
        count = sum(1 for it in (*getattr(record, "writes", ()), *events) if not self._looking.has(it))
        things = "one more thing" if count == 1 else f"{count} more things"
        return f"with {trace} went {things} that it had noted: messages, values of its run, events" if count else ""

    def _why_not(self, trace: Trace, record: r.Record) -> str:
        stream, seq = trace.entry
        if other := self._owners.another(stream, record):
            return f"it is agent {other!r}'s: forget it there"
        if self._is_written_again(record):
            return "somebody has written it again meanwhile: forget once more"
        if isinstance(record, r.Landed):
            return self._why_not_landed(record)
        if not isinstance(record, _WHOLE):
            return _REASONS.get(trace.kind, "it is needed to know what the run did")
        if why := self._reliance.why(stream, seq):
            return why
        if stream in self._folded and not isinstance(record, r.RunFinished):
            return "its run was folded, and what is left of it is needed"
        if not all(self._is_plain(it) or self._is_gone(it) for it in getattr(record, "landed", ())):
            return "a checkpoint, an artifact or a plan was written with it"
        return ""

    def _why_not_landed(self, record: r.Landed) -> str:
        others = [it for it in record.landed if not self._is_plain(it) and not self._is_gone(it)]
        if others:
            how = _DELETES.get(type(others[0]), "")
            return f"delete it with {how}, and forget the text again" if how else "it says what was asked for"
        if not all(self._looking.has(it) or self._is_gone(it) or self._is_replaced(it) for it in record.landed):
            return "something else was written with it"
        return ""

    def _is_written_again(self, record: r.Record) -> bool:
        """Whether a document has it that was redacted before: that is more than the text, and is not removed for it."""
        landed = getattr(record, "landed", ())
        changes = (it for it in landed if isinstance(it, r.StateChange) and it.space == DOCUMENTS)
        return any(self._is_current((it.owner, it.space, it.key)) for it in changes)

    def _is_plain(self, it: r.Landing) -> bool:
        return isinstance(it, r.StateChange | r.Happened)

    def _is_gone(self, it: r.Landing) -> bool:
        """Whether it is a version of something that was deleted: nobody reads it any more."""
        return objects.is_dropped(it, self._dropped)

    def _is_replaced(self, it: r.Landing) -> bool:
        """Whether a value has got another one since: then it is history only."""
        if not isinstance(it, r.StateChange):
            return False
        rows = self._engine.store.read("get_entry", (it.owner, it.space, it.key))
        return bool(rows) and rows[0][1] > it.version

    def _is_current(self, place: tuple[int, str, str]) -> bool:
        rows = self._engine.store.read("get_entry", place)
        return bool(rows) and self._looking.has(r.StateChange(*place, 0, 0, rows[0][0]))


_DELETES: dict[type[r.Record], str] = {
    r.CheckpointMade: "agent.checkpoint.delete(name)",
    r.ArtifactSaved: "agent.artifacts.delete(name)",
    r.ThreadPut: "agent.threads.delete(thread)",
    r.ThreadWrote: "agent.threads.delete(thread)",
}
_REASONS = {
    "effect": "it proves what was done to the world",
    "input": "it is the input of a run, by which the run is known",
    "fork": "it says how a fork began",
    "question": "it says what the run waited for",
    "answer": "it says what the run was told",
}


def struck(
    looking: Looking, traces: Sequence[Trace], spared: Collection[str], others: Collection[str]
) -> tuple[list[Trace], list[Trace]]:
    """Take the lines with a text out of archives of memories; returns which were changed, and which could not be.

    Some lines are spared, by the ids of their memories: they go later, or are other agents'.
    """
    changed, left = list[Trace](), list[Trace]()
    for trace in traces:
        if not trace.what.endswith(SUFFIX):
            left.append(trace)
            continue
        if without(trace.what, partial(_is_going, looking, {*spared, *others})):
            changed.append(trace)
        if any(looking.is_in(line) and is_one_of(line, others) for line in lines_of(trace.what)):
            left.append(msgspec.structs.replace(trace, left="memories of another agent are in it: forget them there"))
    return changed, left


def _is_going(looking: Looking, stay: Collection[str], line: bytes) -> bool:
    return looking.is_in(line) and not is_one_of(line, stay)
