"""Erasing a text wherever else it stands, as far as nobody needs what it stands in to go on.

An entry is erased as a whole, or not at all. So what a run at work needs stays, what proves that the world was changed
stays, and an entry in which something else was written too stays: each is listed with the reason, and what to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from .. import records as r
from ..files import written_aside
from ..journal.landing import Ask
from .traces import SUFFIX, Looking, Trace

if TYPE_CHECKING:
    from ..engine import Engine

_WHOLE = (r.StepDone, r.StepFailed, r.AttemptFailed, r.ItemDone, r.Wrote)
"""Entries of a run that nobody needs once it is over: without them it can be read, but not replayed."""

_OVER = (r.Status.FINISHED, r.Status.CANCELLED)


class Elsewhere(msgspec.Struct, frozen=True):
    """What is to be done to the other places."""

    erased: tuple[Trace, ...] = ()
    left: tuple[Trace, ...] = ()
    first: tuple[Ask, ...] = ()
    """Keys of state that were written with it. Those that have the text are deleted, so that their versions go on; the
    others are written once more as they are, so that they do not go with the entry."""
    notes: tuple[str, ...] = ()
    """What goes with an entry although it does not have the text."""


def elsewhere(engine: Engine, looking: Looking, found: Iterable[tuple[Trace, r.Record]]) -> Elsewhere:
    """Sort the other places of a text."""
    over = {row[0] for row in engine.store.read("all_runs") if row[3] in _OVER}
    folded = {
        stream for (stream, *_) in engine.store.read("all_streams") if engine.store.read("last_folded", (stream,))
    }
    erased, left, first = dict[Trace, None](), dict[Trace, None](), dict[tuple[int, str, str], Ask]()
    notes: dict[tuple[int, int], str] = {}
    for trace, record in found:
        why = _why_not(engine, looking, trace, record, over, folded)
        if why:
            left[msgspec.structs.replace(trace, left=why)] = None
            continue
        erased[trace] = None
        notes[trace.entry] = _lost(looking, trace, record)
        for it in getattr(record, "landed", ()):
            if isinstance(it, r.StateChange) and it.value:
                place = (it.owner, it.space, it.key)
                if _is_current(engine, looking, place):
                    first[place] = Ask(place)
                else:
                    first.setdefault(place, Ask(place, touches=it.version, expires=it.expires))
    told = tuple(note for note in notes.values() if note)
    return Elsewhere(tuple(erased), tuple(left), tuple(first.values()), told)


def _lost(looking: Looking, trace: Trace, record: r.Record) -> str:
    """What a run had noted in an entry beside the text: it belongs to the entry, and cannot be written once more."""
    events = [it for it in getattr(record, "landed", ()) if isinstance(it, r.Happened)]
    count = sum(1 for it in (*getattr(record, "writes", ()), *events) if not looking.has(it))
    things = "one more thing" if count == 1 else f"{count} more things"
    return f"with {trace} went {things} that it had noted: messages, values of its run, events" if count else ""


def struck(looking: Looking, traces: Sequence[Trace]) -> tuple[list[Trace], list[Trace]]:
    """Take the lines with a text out of archives of memories; returns which were changed, and which could not be."""
    ours = [it for it in traces if it.what.endswith(SUFFIX)]
    for trace in ours:
        kept = [line for line in Path(trace.what).read_bytes().splitlines(keepends=True) if not looking.is_in(line)]
        if kept:
            with written_aside(trace.what) as file:
                file.writelines(kept)
        else:
            Path(trace.what).unlink()
    return ours, [it for it in traces if it not in ours]


def _why_not(engine: Engine, looking: Looking, trace: Trace, record: r.Record, over: set[int], folded: set[int]) -> str:
    stream, _ = trace.entry
    if isinstance(record, r.Landed):
        return _why_not_landed(engine, looking, record)
    if not isinstance(record, _WHOLE):
        return _REASONS.get(trace.kind, "it is needed to know what the run did")
    if stream not in over:
        return "its run is not over: finish or cancel it, and forget again"
    if stream in folded:
        return "its run was folded, and what is left of it is needed"
    if any(not isinstance(it, r.StateChange | r.Happened) for it in getattr(record, "landed", ())):
        return "a checkpoint, an artifact or a plan was written with it"
    return ""


def _why_not_landed(engine: Engine, looking: Looking, record: r.Landed) -> str:
    if any(not isinstance(it, r.StateChange | r.Happened) for it in record.landed):
        [first] = [it for it in record.landed if not isinstance(it, r.StateChange | r.Happened)][:1]
        kinds = {r.CheckpointMade: "agent.checkpoint.delete(name)", r.ArtifactSaved: "agent.artifacts.delete(name)"}
        how = kinds.get(type(first), "agent.threads.delete(thread)" if isinstance(first, r.ThreadPut) else "")
        return f"delete it with {how}, then `perdure gc`" if how else "it is needed to know what was asked for"
    if not all(looking.has(it) or _is_replaced(engine, it) for it in record.landed):
        return "something else was written with it"
    return ""


_REASONS = {
    "effect": "it proves what was done to the world",
    "input": "it is the input of a run",
    "result": "it is the result of a run",
}


def _is_replaced(engine: Engine, it: r.Landing) -> bool:
    """Whether a value has got another one since: then it is history only."""
    rows = engine.store.read("get_entry", (it.owner, it.space, it.key)) if isinstance(it, r.StateChange) else []
    return bool(rows) and isinstance(it, r.StateChange) and rows[0][1] > it.version


def _is_current(engine: Engine, looking: Looking, place: tuple[int, str, str]) -> bool:
    rows = engine.store.read("get_entry", place)
    return bool(rows) and looking.has(r.StateChange(*place, 0, 0, rows[0][0]))
