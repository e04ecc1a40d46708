"""Forgetting: a memory is erased from the journal, the views, the index and the objects, in one commit.

The entry stays, without its body: its digest is what the chain covers, and begins with random bytes. What else refers
to the text is listed; with `everywhere` it is erased too, as far as nobody needs it to go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from .. import archive, collect, objects, state
from .. import records as r
from ..answers import whoever
from ..errors import MemoryNotFound, StoreBusy
from ..failpoints import Site
from ..journal import chain
from ..journal.append import Append, Head, Signer
from ..journal.fold_memories import listed as in_json
from ..journal.rebuild import rebuild
from ..memory_records import Ended
from ..run.open_stream import in_the_open
from ..run.requests import Protocol, Read
from ..store.base import Script, Statement, Unit, must_not_decide
from ..trees import references
from . import outside, pieces
from .everywhere import Elsewhere, elsewhere, struck
from .found import Memory, Query
from .reading import by_id, listed, marks_between
from .traces import Looking, Trace, once, spellings

if TYPE_CHECKING:
    from ..engine import Engine

Place = tuple[int, int]

_SEARCHED_MIN = 8
"""Bytes: shorter texts stand everywhere, and mean nobody."""


class Forgotten(msgspec.Struct, frozen=True):
    """What `forget` has done: what is gone, where the text still is, and what has to be seen to."""

    ids: tuple[str, ...] = ()
    """The memories that are gone."""
    entries: int = 0
    """Entries of the journal whose bodies are gone."""
    objects: int = 0
    """Large values that are gone."""
    elsewhere: tuple[Trace, ...] = ()
    """Where the text stands too. With `everywhere` only what could not be erased, and why."""
    erased: tuple[Trace, ...] = ()
    """What `everywhere` has erased beside the memories."""
    notes: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """How many memories are gone."""
        return len(self.ids)

    def __bool__(self) -> bool:
        return bool(self.ids)

    def __str__(self) -> str:
        if not self.ids:
            return "nothing to forget"
        told = f"forgot {self.count} {'memory' if self.count == 1 else 'memories'}"
        told += f", and erased {len(self.erased)} other places" if self.erased else ""
        return told + (f"; the text is still in {len(self.elsewhere)} other places" if self.elsewhere else "")


class Redacted(msgspec.Struct, frozen=True):
    """What has become of documents that had the text."""

    paths: tuple[str, ...] = ()
    """Which ones had it."""
    notes: tuple[str, ...] = ()
    """Where else it may be."""


Redact = Callable[["Engine", Sequence[str]], Protocol[Redacted]]
"""Takes texts out of the documents that people read: they are more than the text, and are not erased for it."""


class _Changed(StoreBusy):
    """Something was said of one of the memories since the plan was made."""


class _Plan(msgspec.Struct, frozen=True):
    """What is to be erased."""

    memories: tuple[Memory, ...]
    entries: tuple[Place, ...]
    marks: tuple[tuple[Any, ...], ...]
    """What is said of the memories, as the plan was made."""
    record: r.MemoryForgotten
    also: tuple[Statement, ...]
    watched: tuple[bytes, ...]
    """Objects that may be nobody's then."""
    elsewhere: Elsewhere
    texts: tuple[bytes, ...]

    @property
    def ids(self) -> tuple[str, ...]:
        return self.record.ids

    @property
    def searched(self) -> tuple[str, ...]:
        """The texts that are looked for elsewhere."""
        return tuple(text.decode() for text in self.texts if len(text) >= _SEARCHED_MIN)


def forget(
    engine: Engine,
    ids: Sequence[str],
    query: Query | None,
    *,
    everywhere: bool,
    redact: Redact,
    reason: str,
    by: str | None,
) -> Protocol[Forgotten]:
    """Erase memories: those of some ids, or all that pass a filter. It is done at once, also inside a step."""
    must_not_decide()
    known: bool = yield Read(engine.is_known)
    redacted = None if everywhere else Redacted()
    while known:
        plan: _Plan | None = yield Read(_planned, (engine, ids, query, everywhere, reason, by or whoever()))
        if plan is None:
            break
        if redacted is None:
            redacted = yield from redact(engine, plan.searched)
            if redacted.paths:
                continue  # they say something else now
        yield Read(outside.erase, (engine, plan.ids))
        if plan.elsewhere.first:
            yield from state.land(engine, Site.STATE, plan.elsewhere.first)
        try:
            unit = yield from in_the_open(engine, partial(_Forget, engine, plan))
        except _Changed:
            continue
        done: Forgotten = yield Read(_ended, (engine, plan, unit.dropped, everywhere))
        return msgspec.structs.replace(done, notes=(*done.notes, *redacted.notes))
    return Forgotten()


def forget_some(engine: Engine, ids: Sequence[str], reason: str) -> Protocol[None]:
    """Erase memories that nobody keeps any more, without a look where else they are; some may be gone already."""
    while True:
        found: dict[str, Memory] = yield Read(by_id, (engine, ids))
        if not found:
            return
        plan: _Plan = yield Read(_drawn_up_alone, (engine, list(found.values()), (reason, engine.name)))
        yield Read(outside.erase, (engine, plan.ids))
        try:
            yield from in_the_open(engine, partial(_Forget, engine, plan))
        except _Changed:
            continue
        return


def _drawn_up_alone(engine: Engine, found: Sequence[Memory], told: tuple[str, str]) -> _Plan:
    entries, marks = _entries_of(engine, found, ())
    return _drawn_up(engine, found, tuple(entries), marks, Elsewhere(), told)


def _ended(engine: Engine, plan: _Plan, dropped: int, everywhere: bool) -> Forgotten:
    """After the commit: views that lost an entry, what is left over in files, archives that have it."""
    if plan.elsewhere.erased:
        rebuild(engine.store)
    note = engine.store.scrub([needle for text in plan.searched for needle in spellings(text)])
    looking = Looking(engine, plan.searched)
    archives = once(looking.archives(archive.folder_of(engine.store)))
    changed, others = struck(looking, archives) if everywhere else ([], archives)
    erased, left = (*plan.elsewhere.erased, *changed), (*plan.elsewhere.left, *others)
    notes = (*plan.elsewhere.notes, *([note] if note else []))
    return Forgotten(plan.ids, len(plan.entries), dropped, left, erased, notes)


def _planned(
    engine: Engine, ids: Sequence[str], query: Query | None, everywhere: bool, reason: str, by: str
) -> _Plan | None:
    found = _named(engine, ids) if query is None else listed(engine, query)
    seen = _seen_from(engine, query.source) if query is not None else []
    if not found and not seen:
        return None
    looking = Looking(engine, [it.text for it in found if len(it.text.encode()) >= _SEARCHED_MIN])
    entries, marks = _entries_of(engine, found, seen)
    others = list(looking.entries(frozenset(entries)))
    if everywhere:
        also = {record.id for _, record in others if isinstance(record, r.MemoryKept) and record.owner == engine.stream}
        found += list(by_id(engine, sorted(also)).values())
        entries, marks = _entries_of(engine, found, seen)
        others = [pair for pair in others if pair[0].entry not in entries]
        more = elsewhere(engine, looking, others)
        entries |= {trace.entry: None for trace in more.erased}
    else:
        more = Elsewhere(left=tuple(once(trace for trace, _ in others)))
    return _drawn_up(engine, found, tuple(entries), marks, more, (reason, by))


def _named(engine: Engine, ids: Sequence[str]) -> list[Memory]:
    found = by_id(engine, ids)
    for which in ids:
        if which not in found:
            raise MemoryNotFound(f"agent {engine.name!r} has no memory {which!r}")
    return list({it.id: it for it in found.values()}.values())


def _seen_from(engine: Engine, source: str) -> list[tuple[Any, ...]]:
    """That memories were seen again, as a source has said."""
    return [tuple(row) for row in engine.store.read("marks_from", (engine.stream, source))] if source else []


def _entries_of(
    engine: Engine, found: Iterable[Memory], seen: Sequence[tuple[Any, ...]]
) -> tuple[dict[Place, None], list[tuple[Any, ...]]]:
    """The entries that have memories, or say that they were seen again; and all that is said of them."""
    ids = {it.id: it.entry for it in found}
    marks = list(dict.fromkeys([*marks_between(engine, list(ids)), *seen]))
    again = [row[-2:] for row in marks if row[1] == "again" and (row[0] in ids or row in seen)]
    return dict.fromkeys([*ids.values(), *again]), marks


def _drawn_up(
    engine: Engine,
    found: Sequence[Memory],
    entries: Sequence[Place],
    marks: Sequence[tuple[Any, ...]],
    more: Elsewhere,
    told: tuple[str, str],
) -> _Plan:
    owner, ids = engine.stream, tuple(it.id for it in found)
    also, watched = list[Statement](), dict[bytes, None]()
    for stream, seq in entries:
        [(_, kind, _, body, _, _)] = engine.store.read("event_at", (stream, seq))
        if body is not None:
            also.append(Statement("erase_event", (stream, seq, chain.body_digest(body))))
            for packed in objects.packed_in(r.decode(kind, body)):
                watched.update(dict.fromkeys(references(engine.store, packed)))
    also += pieces.unindexed(owner, ids)
    also += [Statement("drop_memory_uses", (owner, which)) for which in ids]
    if more.erased:
        also.append(Statement("put_meta", ("stale", b"\x01")))  # whoever opens the store makes the views anew
    record = r.MemoryForgotten(owner, ids, tuple(entries), *told, *_consequences(engine, ids, marks))
    texts = tuple(it.text.strip().encode() for it in found)
    return _Plan(tuple(found), tuple(entries), tuple(marks), record, tuple(also), tuple(watched), more, texts)


def _consequences(
    engine: Engine, ids: Sequence[str], marks: Sequence[tuple[Any, ...]]
) -> tuple[tuple[str, ...], tuple[Ended, ...]]:
    """Which others are concerned, and which of them stay replaced although what has replaced them is gone."""
    going = set(ids)
    touched = dict.fromkeys(it for which, _, other, *_ in marks for it in (which, other) if it and it not in going)
    withdrawn = {which for which, what, *_ in marks if what == "withdrawn"}
    ended = [
        Ended(which, at, valid)
        for which, what, other, at, valid, *_ in marks
        if what == "superseded" and other in going and which not in going and other not in withdrawn
    ]
    return tuple(touched), tuple(ended)


class _Forget(Unit[int]):
    """All of it in one transaction: there is no moment at which a memory is half there."""

    site = Site.FORGET
    erases = long = True

    def __init__(self, engine: Engine, plan: _Plan, head: Head, signer: Signer | None) -> None:
        self.lane = head.stream
        self._engine = engine
        self._plan = plan
        self._head = head
        self._signer = signer
        gone = frozenset(plan.entries)
        watched = collect.Watched(plan.watched)
        self._marks = (
            collect.marked(engine.store, forgotten=lambda *place: place in gone, watched=watched)
            if plan.watched
            else None
        )
        self._append: Append | None = None
        self.dropped = 0

    def script(self) -> Script[int]:
        plan, owner = self._plan, self._engine.stream
        ids = in_json(plan.ids)
        [_, marks] = yield [Statement("lock_space", (owner, "memory")), Statement("marks_of", (owner, ids))]
        if not {tuple(row) for row in marks} <= set(plan.marks):
            raise _Changed
        also = list(plan.also)
        if self._marks is not None:
            unused = yield from collect.still_unused(self._marks, plan.watched)
            also += [Statement("drop_object", (identity,)) for identity in unused]
            self.dropped = len(unused)
        clock = self._engine.store.clock
        self._append = Append(self.site, self._head, [plan.record], clock, also=also, signer=self._signer)
        return (yield from self._append.script())

    def settle(self, committed: bool) -> None:
        if self._append is not None:
            self._append.settle(committed)
