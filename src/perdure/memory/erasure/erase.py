"""Erases other copies of a forgotten text from the journal, unless an entry is still needed.

An entry is erased whole or not at all. Entries stay that an unfinished run needs, that prove an external effect, or
that hold other data too. Each is listed with the reason and what to do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from perdure import records as r
from perdure.journal import objects
from perdure.journal.agent_writes import SetKey
from perdure.journal.retention_rules import DOCUMENTS
from perdure.memory.archive import is_one_of, lines_of, rewrite_without
from perdure.memory.erasure.find import SUFFIX, TextOccurrence, TextSearch
from perdure.memory.erasure.reliance import RunReliance

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

_WHOLE = (
    r.StepDone,
    r.StepFailedEntry,
    r.AttemptFailed,
    r.ItemDone,
    r.Wrote,
    r.RunFailed,
    r.RunInterrupted,
    r.RunFinishedEntry,
)
"""Entries that a finished run no longer needs: without them it can be read, but not replayed.

Its status survives without the body of the last entry.
"""


class OtherCopies(msgspec.Struct, frozen=True):
    """What happens to the other copies of a text."""

    erased: tuple[TextOccurrence, ...] = ()
    left: tuple[TextOccurrence, ...] = ()
    first: tuple[SetKey, ...] = ()
    """State keys written in the erased entries. Keys with the text are deleted, which continues their versions.

    The others are written again unchanged, so that they survive the erasure of the entry.
    """
    notes: tuple[str, ...] = ()
    """Data without the text that is lost together with an entry."""
    relied_on: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """The finished runs that were found not to be needed, each with its forks."""


def sort_other_copies(
    engine: Engine, looking: TextSearch, found: Iterable[tuple[TextOccurrence, r.Record]]
) -> OtherCopies:
    """Decide for each other copy of a text whether it is erased or stays."""
    sorting = _CopySorter(engine, looking)
    for trace, record in found:
        sorting.take(trace, record)
    return sorting.outcome()


class _EntryOwners:
    """Finds the owner of an entry: agents share a store, and none erases what belongs to another."""

    def __init__(self, engine: Engine, looking: TextSearch) -> None:
        self._own = engine.name
        self._agents = {stream: name for name, stream, *_ in engine.store.read("all_agents")}
        self._agent_of = looking.agent_of

    def find_other_owner(self, stream: int, record: r.Record) -> str:
        """Return the name of the other agent that owns an entry; empty if it belongs to this one."""
        whose = self._agent_of(stream) or self._agents.get(stream)
        parts = (record, *getattr(record, "landed", ()))
        names = [whose] if whose else [self._agents.get(getattr(part, "owner", 0)) for part in parts]
        return next((name for name in names if name and name != self._own), "")


class _CopySorter:
    """Decides about copies one by one."""

    def __init__(self, engine: Engine, looking: TextSearch) -> None:
        store = engine.store
        self._engine = engine
        self._looking = looking
        self._owners = _EntryOwners(engine, looking)
        self._reliance = RunReliance(store)
        self._dropped = objects.DroppedVersions(store)
        self._compaction = {
            stream for (stream, *_) in store.read("all_streams") if store.read("last_compaction", (stream,))
        }
        self._erased, self._left = dict[TextOccurrence, None](), dict[TextOccurrence, None]()
        self._first: dict[tuple[int, str, str], SetKey] = {}
        self._notes: dict[tuple[int, int], str] = {}

    def take(self, trace: TextOccurrence, record: r.Record) -> None:
        """Decide about one copy."""
        why = self._explain_stay(trace, record)
        if why:
            self._left[msgspec.structs.replace(trace, left=why)] = None
            return
        self._erased[trace] = None
        self._notes[trace.entry] = self._describe_loss(trace, record)
        for change in getattr(record, "landed", ()):
            if isinstance(change, r.StateChange) and change.value:
                place = (change.owner, change.space, change.key)
                if self._is_current(place):
                    self._first[place] = SetKey(place)
                else:
                    self._first.setdefault(place, SetKey(place, touches=change.version, expires=change.expires))

    def outcome(self) -> OtherCopies:
        """Return the decisions."""
        told = tuple(note for note in self._notes.values() if note)
        relied_on = tuple(sorted(self._reliance.relied_on.items()))
        return OtherCopies(tuple(self._erased), tuple(self._left), tuple(self._first.values()), told, relied_on)

    def _describe_loss(self, trace: TextOccurrence, record: r.Record) -> str:
        """Return a note about data of the run that is lost with an entry; it is not written again."""
        events = [landing for landing in getattr(record, "landed", ()) if isinstance(landing, r.EventAppended)]
        count = sum(1 for landing in (*getattr(record, "writes", ()), *events) if not self._looking.has(landing))
        things = "one more thing" if count == 1 else f"{count} more things"
        return f"{trace} also held {things} of its run, now erased: messages, state or events" if count else ""

    def _explain_stay(self, trace: TextOccurrence, record: r.Record) -> str:
        stream, seq = trace.entry
        if other := self._owners.find_other_owner(stream, record):
            return f"it belongs to agent {other!r}: forget it there"
        if self._is_written_again(record):
            return "it was written again meanwhile: forget it again"
        if isinstance(record, r.Landed):
            return self._explain_landed_stay(record)
        if not isinstance(record, _WHOLE):
            return _REASONS.get(trace.kind, "the run's record needs it")
        if why := self._reliance.explain(stream, seq):
            return why
        if stream in self._compaction and not isinstance(record, r.RunFinishedEntry):
            return "its run was compacted, and its remaining entries are needed"
        if not all(self._is_plain(landing) or self._is_gone(landing) for landing in getattr(record, "landed", ())):
            return "the same entry holds a checkpoint, an artifact or a workflow"
        return ""

    def _explain_landed_stay(self, record: r.Landed) -> str:
        others = [landing for landing in record.landed if not self._is_plain(landing) and not self._is_gone(landing)]
        if others:
            how = _DELETES.get(type(others[0]), "")
            return f"delete it with {how}, then forget the text again" if how else "it records a request"
        if not all(
            self._looking.has(landing) or self._is_gone(landing) or self._is_replaced(landing)
            for landing in record.landed
        ):
            return "the same entry holds other data"
        return ""

    def _is_written_again(self, record: r.Record) -> bool:
        """Return whether a redacted document has the text again. A document is more than the text and is not erased."""
        landed = getattr(record, "landed", ())
        changes = (change for change in landed if isinstance(change, r.StateChange) and change.space == DOCUMENTS)
        return any(self._is_current((change.owner, change.space, change.key)) for change in changes)

    def _is_plain(self, landing: r.AgentChange) -> bool:
        return isinstance(landing, r.StateChange | r.EventAppended)

    def _is_gone(self, landing: r.AgentChange) -> bool:
        """Return whether it is a version of something deleted, which nobody reads any more."""
        return objects.is_dropped(landing, self._dropped)

    def _is_replaced(self, change: r.AgentChange) -> bool:
        """Return whether a newer value has replaced this one, so that it is only history."""
        if not isinstance(change, r.StateChange):
            return False
        rows = self._engine.store.read("get_agent_state", (change.owner, change.space, change.key))
        return any(version > change.version for _, version, *_ in rows)

    def _is_current(self, place: tuple[int, str, str]) -> bool:
        rows = self._engine.store.read("get_agent_state", place)
        return any(self._looking.has(r.StateChange(*place, 0, 0, value)) for value, *_ in rows)


_DELETES: dict[type[r.Record], str] = {
    r.CheckpointMade: "agent.checkpoint.delete(name)",
    r.ArtifactSaved: "agent.artifacts.delete(name)",
    r.ThreadPut: "agent.threads.delete(thread)",
    r.ThreadWrote: "agent.threads.delete(thread)",
}
_REASONS = {
    "effect": "it proves an external effect",
    "input": "it is the input that identifies a run",
    "fork": "it records how a fork began",
    "question": "it records what the run waited for",
    "answer": "it records the answer that the run received",
}


def redact_archives(
    looking: TextSearch, traces: Sequence[TextOccurrence], spared: Collection[str], others: Collection[str]
) -> tuple[list[TextOccurrence], list[TextOccurrence]]:
    """Remove the lines with a text from archives of memories. Returns the changed archives and those that stay.

    The ids in `spared` are erased later; those in `others` belong to other agents.
    """
    changed, left = list[TextOccurrence](), list[TextOccurrence]()
    for trace in traces:
        if not trace.what.endswith(SUFFIX):
            left.append(trace)
            continue
        if rewrite_without(trace.what, partial(_is_going, looking, {*spared, *others})):
            changed.append(trace)
        if any(looking.is_in(line) and is_one_of(line, others) for line in lines_of(trace.what)):
            left.append(msgspec.structs.replace(trace, left="it holds memories of another agent: forget them there"))
    return changed, left


def _is_going(looking: TextSearch, stay: Collection[str], line: bytes) -> bool:
    return looking.is_in(line) and not is_one_of(line, stay)
