"""Forgetting: a memory is erased from the journal, the views, the index and the objects, in one commit.

The entry stays, without its body: its digest is what the chain covers, and begins with random bytes. What else refers
to the text is listed; with `everywhere` it is erased too, as far as nobody needs it to go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from typing import Protocol as Typed

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
from ..limits import TRACES_MAX
from ..memory_records import Ended
from ..run.open_stream import in_the_open
from ..run.requests import Protocol, Read
from ..store.base import Script, Statement, Unit, must_not_decide
from ..trees import references
from . import outside, pieces
from .archived import Archived, Line, archived, let_go, strike, traces_of
from .everywhere import Elsewhere, elsewhere, struck
from .found import Memory, Query
from .given import SEARCHED_MIN, Which
from .reading import by_id, listed, marks_between
from .remnants import Remnants, remnants_of
from .seeing import taken_back
from .traces import SNAPSHOT, Looking, Trace, once

if TYPE_CHECKING:
    from ..engine import Engine

Place = tuple[int, int]
NOWHERE: Place = (0, 0)
"""Of a trace that is no entry of the journal."""


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
        return bool(self.ids or self.erased)

    def __str__(self) -> str:
        if not self.ids and not self.erased:
            told = "nothing to forget"
        else:
            told = f"forgot {self.count} {'memory' if self.count == 1 else 'memories'}"
        told += f", and erased {len(self.erased)} other places" if self.erased else ""
        return told + (f"; the text is still in {len(self.elsewhere)} other places" if self.elsewhere else "")


class Redacted(msgspec.Struct, frozen=True):
    """What has become of documents that had the text."""

    paths: tuple[str, ...] = ()
    """Which ones had it."""
    files: tuple[str, ...] = ()
    """Those of them that are files only, which the journal does not tell of."""
    notes: tuple[str, ...] = ()
    """Where else it may be."""


class Redactor(Typed):
    """Takes texts out of the documents that people read: they are more than the text, and are not erased for it."""

    def look(self, texts: Sequence[str]) -> Protocol[Redacted]:
        """Only say where they are."""
        ...

    def redact(self, texts: Sequence[str]) -> Protocol[Redacted]:
        """Put marks in their place; nobody brings them back from a file until it is released."""
        ...

    def release(self) -> None:
        """What the journal had is erased now."""
        ...


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
    texts: tuple[str, ...]
    """What is looked for elsewhere."""
    token: str = ""
    """By which it is known that files have to be scrubbed after it."""
    remnants: Remnants = Remnants()
    """What is looked for in them."""
    archived: tuple[Archived, ...] = ()
    """What the filter means in archives. It goes after the commit: whoever is killed before that finds it again."""

    @property
    def ids(self) -> tuple[str, ...]:
        return self.record.ids


class _Files(msgspec.Struct):
    """What was done to files, which is done before the commit: if that does not come, all of it is done again."""

    redacted: Redacted | None = None
    erased: dict[Trace, None] = msgspec.field(default_factory=dict)
    left: tuple[Trace, ...] = ()


def forget(
    engine: Engine, which: Which, *, everywhere: bool, redactor: Redactor, reason: str, by: str | None
) -> Protocol[Forgotten]:
    """Erase memories, and a text wherever else it stands. It is done at once, also inside a step."""
    must_not_decide()
    waited = taken_back(engine, which)
    if waited and which.ids:
        which = msgspec.structs.replace(which, ids=tuple(it for it in which.ids if it not in waited))
        if not which.ids:
            return Forgotten(waited)
    try:
        done = yield from _forgotten(engine, which, everywhere, redactor, (reason, by or whoever()))
        return msgspec.structs.replace(done, ids=(*waited, *done.ids)) if waited else done
    finally:
        redactor.release()


def _forgotten(
    engine: Engine, which: Which, everywhere: bool, redactor: Redactor, told: tuple[str, str]
) -> Protocol[Forgotten]:
    known: bool = yield Read(engine.is_known)
    files = _Files()
    while known:
        plan: _Plan | None = yield Read(_planned, (engine, which, everywhere, *told))
        if plan is None:
            break
        if files.redacted is None:
            files.redacted = yield from (redactor.redact if everywhere else redactor.look)(plan.texts)
            if files.redacted.paths and everywhere:
                continue  # they say something else now
        yield Read(_seen_to, (engine, plan, everywhere, files))
        if plan.elsewhere.first:
            yield from state.land(engine, Site.STATE, plan.elsewhere.first)
        try:
            gone = yield from _erased(engine, plan)
        except _Changed:
            continue
        redactor.release()
        done: Forgotten = yield Read(_ended, (engine, plan, gone, everywhere, files))
        return done
    return Forgotten()


def _erased(engine: Engine, plan: _Plan) -> Protocol[Sequence[bytes]]:
    """The commit; returns the objects that went with it. None is made for nothing."""
    if not plan.entries and not plan.also:
        return ()
    unit = yield from in_the_open(engine, partial(_Forget, engine, plan))
    for which in plan.ids:
        engine.recalled.pop(which, None)
    return unit.gone


def forget_some(engine: Engine, ids: Sequence[str], reason: str) -> Protocol[None]:
    """Erase memories that nobody keeps any more, without a look where else they are; some may be gone already."""
    while True:
        found: dict[str, Memory] = yield Read(by_id, (engine, ids))
        if not found:
            return
        plan: _Plan = yield Read(_drawn_up_alone, (engine, list(found.values()), (reason, engine.name)))
        yield Read(outside.erase, (engine, plan.ids))
        try:
            yield from _erased(engine, plan)
        except _Changed:
            continue
        return


def _drawn_up_alone(engine: Engine, found: Sequence[Memory], told: tuple[str, str]) -> _Plan:
    entries, marks = _entries_of(engine, found, ())
    return _drawn_up(engine, found, tuple(entries), marks, Elsewhere(), told)


def _seen_to(engine: Engine, plan: _Plan, everywhere: bool, files: _Files) -> None:
    """What is not in the store goes first: who is killed before the commit finds the memories, and begins again."""
    outside.erase(engine, plan.ids)
    looking = Looking(engine, plan.texts)
    found = once(looking.archives(archive.folder_of(engine.store)))
    changed, others = _struck(engine, looking, found, plan) if everywhere else ([], found)
    files.erased.update(dict.fromkeys(changed))
    redacted = files.redacted or Redacted()
    traces = [Trace("file", path) for path in redacted.files]
    files.erased.update(dict.fromkeys(traces if everywhere else ()))
    listed = () if everywhere else (*traces_of(plan.archived), *traces)
    files.left = tuple(dict.fromkeys((*others, *listed)))


def _struck(engine: Engine, looking: Looking, found: Sequence[Trace], plan: _Plan) -> tuple[list[Trace], list[Trace]]:
    _, others = let_go(engine) if found else (frozenset(), frozenset())
    return struck(looking, found, {it.line.id for it in plan.archived}, others)


def _ended(engine: Engine, plan: _Plan, gone: Sequence[bytes], everywhere: bool, files: _Files) -> Forgotten:
    """After the commit: views that lost an entry, values that nobody has any more, what is left over in files."""
    if plan.elsewhere.erased:
        rebuild(engine.store)
    files.erased.update(dict.fromkeys(strike(plan.archived) if everywhere else ()))
    dropped = len(gone) + (collect.collect(engine.store).objects if everywhere else 0)
    note = engine.store.scrub(plan.remnants.after(gone), plan.token)
    erased, left = (*plan.elsewhere.erased, *files.erased), (*plan.elsewhere.left, *files.left)
    redacted = files.redacted or Redacted()
    notes = (*plan.elsewhere.notes, *filter(None, [note, outside.note(engine, plan.ids)]), *redacted.notes)
    return Forgotten(plan.ids, len(plan.entries), dropped, left, erased, (*notes, *_unsearched(plan, left)))


def _unsearched(plan: _Plan, left: Sequence[Trace]) -> Iterator[str]:
    """What the report does not tell."""
    short = sum(1 for it in plan.memories if len(it.text.strip().encode()) < SEARCHED_MIN)
    if short:
        which = "a text was" if short == 1 else f"{short} texts were"
        yield f"{which} too short to be looked for elsewhere: fewer than {SEARCHED_MIN} bytes"
    if len(left) >= TRACES_MAX:
        yield f"more places than the {TRACES_MAX:,} that are listed have the text"


def _planned(engine: Engine, which: Which, everywhere: bool, reason: str, by: str) -> _Plan | None:
    found, seen = meant(engine, which)
    put_away = archived(engine, which.query)
    if not found and not seen and not put_away and not which.text:
        return None
    texts = [which.text] if which.text else _searched([*found, *(it.line for it in put_away)])
    looking = Looking(engine, texts)
    entries, marks = _entries_of(engine, found, seen)
    others = list(looking.entries(frozenset(entries)))
    beside = list(looking.beside())
    if everywhere:
        also = {record.id for _, record in others if isinstance(record, r.MemoryKept) and record.owner == engine.stream}
        found += list(by_id(engine, sorted(also)).values())
        entries, marks = _entries_of(engine, found, seen)
        others = [pair for pair in others if pair[0].entry not in entries]
        more = _with(elsewhere(engine, looking, others), beside, _made_of(found, marks))
        entries |= {trace.entry: None for trace in more.erased if trace.entry != NOWHERE}
    else:
        traces = [trace for trace, _ in others] + beside
        more = Elsewhere(left=tuple(once(iter([*traces, *_made_of(found, marks, traces)]))))
    plan = _drawn_up(engine, found, tuple(entries), marks, more, (reason, by))
    stripped = tuple(text.strip() for text in texts)
    token = engine.store.clock.salt().hex() if plan.also else ""
    return msgspec.structs.replace(
        plan,
        texts=stripped,
        token=token,
        also=(*plan.also, *(engine.store.owing(token) if token else ())),
        remnants=remnants_of(engine, found, stripped, plan.watched),
        archived=tuple(put_away),
    )


def _searched(found: Iterable[Memory | Line]) -> list[str]:
    """The texts that mean something elsewhere too."""
    return list(dict.fromkeys(it.text for it in found if len(it.text.encode()) >= SEARCHED_MIN))


def meant(engine: Engine, which: Which) -> tuple[list[Memory], list[tuple[Any, ...]]]:
    """The memories that somebody means, and what a source has said of others."""
    if which.text:
        return [it for it in listed(engine, Query(all=True)) if which.text in it.text], []
    if which.query is None:
        return _named(engine, which.ids), []
    return listed(engine, which.query), _seen_from(engine, which.query.source)


def _with(more: Elsewhere, beside: Sequence[Trace], made: Sequence[Trace]) -> Elsewhere:
    """What is beside the journal goes too, as far as it may."""
    erased = (*more.erased, *(trace for trace in beside if not trace.left))
    left = (*more.left, *(trace for trace in beside if trace.left), *made)
    return msgspec.structs.replace(more, erased=erased, left=left)


def _made_of(found: Sequence[Memory], marks: Sequence[tuple[Any, ...]], told: Sequence[Trace] = ()) -> list[Trace]:
    """Memories that were made of others, and do not have the text of those: they may say it in other words."""
    going = {it.id for it in found} | {trace.what for trace in told if trace.kind == "memory"}
    made = dict.fromkeys(row[0] for row in marks if row[1] == "derived" and row[0] not in going)
    left = "it was made of what is forgotten, perhaps in other words: forget it too, if it tells the same"
    return [Trace("memory", which, left=left) for which in made]


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
    dropped = objects.Drops(engine.store) if more.erased else ()  # of what was deleted, the values may be gone already
    for stream, seq in entries:
        [(_, kind, _, body, _, _)] = engine.store.read("event_at", (stream, seq))
        if body is not None:
            also.append(Statement("erase_event", (stream, seq, chain.body_digest(body))))
            for packed in objects.packed_in(r.decode(kind, body), dropped):
                watched.update(dict.fromkeys(references(engine.store, packed)))
    also += pieces.unindexed(owner, ids)
    also += [Statement("drop_memory_uses", (owner, which)) for which in ids]
    if more.erased:
        also.append(Statement("put_meta", ("stale", b"\x01")))  # whoever opens the store makes the views anew
    if any(trace.kind == SNAPSHOT for trace in more.erased):
        also += [Statement("mark_replays"), Statement("clear_replays")]
    record = r.MemoryForgotten(owner, ids, tuple(entries), *told, *_consequences(engine, ids, marks))
    return _Plan(tuple(found), tuple(entries), tuple(marks), record, tuple(also), tuple(watched), more, ())


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
        self.gone: Sequence[bytes] = ()

    def script(self) -> Script[int]:
        plan, owner = self._plan, self._engine.stream
        ids = in_json(plan.ids)
        [_, marks] = yield [Statement("lock_space", (owner, "memory")), Statement("marks_of", (owner, ids))]
        if not {tuple(row) for row in marks} <= set(plan.marks):
            raise _Changed
        yield from self._must_be_needed_by_nobody()
        also = list(plan.also)
        if self._marks is not None:
            self.gone = yield from collect.still_unused(self._marks, plan.watched)
            also += [Statement("drop_object", (identity,)) for identity in self.gone]
        clock = self._engine.store.clock
        self._append = Append(self.site, self._head, [plan.record], clock, also=also, signer=self._signer)
        return (yield from self._append.script())

    def _must_be_needed_by_nobody(self) -> Script[None]:
        """A run that is over may have been forked since the plan was made: then its entries are needed again."""
        relied_on = self._plan.elsewhere.relied_on
        if relied_on:
            yield [Statement("lock_forks", (stream,)) for stream, _ in relied_on]
            found = yield [Statement("forks_of", (stream,)) for stream, _ in relied_on]
            if [tuple(row[0] for row in rows) for rows in found] != [forks for _, forks in relied_on]:
                raise _Changed

    def settle(self, committed: bool) -> None:
        if self._append is not None:
            self._append.settle(committed)
