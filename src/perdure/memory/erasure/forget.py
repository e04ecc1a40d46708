"""Forgetting: erases a memory from the journal, the views, the index and the objects, in one commit.

The entry stays without its body: the chain covers its digest, which begins with random bytes. Other copies of the text
are listed; with `everywhere` they are erased too, unless they are still needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING
from typing import Protocol as Typed

import msgspec

from perdure import records as r
from perdure.errors import MemoryNotFound, StoreBusy
from perdure.journal import archive, chain, object_gc, objects
from perdure.journal.append import Append, Signer, StreamHead
from perdure.journal.project_memories import encode_texts
from perdure.journal.rebuild import rebuild
from perdure.journal.trees import references
from perdure.kernel.names import check_storable_name
from perdure.kernel.open_stream import commit_to_process_stream
from perdure.kernel.protocol import Protocol, Read
from perdure.kernel.write_routing import land
from perdure.memory import pieces
from perdure.memory.archive import ArchivedMemory, LocatedMemory, find_archived, find_dropped_ids, strike, traces_of
from perdure.memory.arguments import SEARCHED_MIN, ForgetSelection
from perdure.memory.erasure.erase import OtherCopies, redact_archives, sort_other_copies
from perdure.memory.erasure.find import SNAPSHOT, TextOccurrence, TextSearch, drop_duplicates
from perdure.memory.erasure.remnants import RemnantSearch, remnants_of
from perdure.memory.facts import drop_cached_senses
from perdure.memory.lifecycle.usage import find_unrecorded_uses
from perdure.memory.read import find_by_id, list_memories, marks_between
from perdure.memory.recall import vector_index
from perdure.memory.recall.piece_cache import drop_cached
from perdure.memory.results import Memory, MemoryQuery
from perdure.memory.visible import discard_pending
from perdure.platform.failpoints import Site
from perdure.records.memories import SuccessorErased
from perdure.run.answers import check_person
from perdure.store.base import Script, Statement, UnitOfWork, check_not_deciding
from perdure.store.rows import RelationRow, read_entry
from perdure.values.limits import TRACES_MAX

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

EntryAddress = tuple[int, int]
NOWHERE: EntryAddress = (0, 0)
"""The address of an occurrence that is not in the journal."""


class ForgetResult(msgspec.Struct, frozen=True):
    """The result of `forget`: what was erased, where the text still is, and what to do about it."""

    ids: tuple[str, ...] = ()
    """The erased memories."""
    entries: int = 0
    """Number of journal entries whose bodies were erased."""
    objects: int = 0
    """Number of erased large values."""
    elsewhere: tuple[TextOccurrence, ...] = ()
    """Other places with the text. With `everywhere`, only those that could not be erased, and why."""
    erased: tuple[TextOccurrence, ...] = ()
    """What `everywhere` has erased besides the memories."""
    notes: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """The number of erased memories."""
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


class RedactionResult(msgspec.Struct, frozen=True):
    """The outcome for documents that had the text."""

    paths: tuple[str, ...] = ()
    """The documents that had it."""
    files: tuple[str, ...] = ()
    """Those of them that are files only, without a journal entry."""
    notes: tuple[str, ...] = ()
    """Other places that may have it."""


class DocumentRedactor(Typed):
    """Removes texts from the documents that people read. The rest of a document stays."""

    def find(self, texts: Sequence[str]) -> Protocol[RedactionResult]:
        """Report where the texts are, without changing anything."""
        ...

    def redact(self, texts: Sequence[str]) -> Protocol[RedactionResult]:
        """Replace the texts by marks. Until `release`, no process can bring them back from a file."""
        ...

    def release(self) -> None:
        """Unlock the documents, after the journal has been erased."""
        ...


class _MemoriesChanged(StoreBusy):
    """One of the memories has changed since the plan was made."""


class _ErasurePlan(msgspec.Struct, frozen=True):
    """What to erase."""

    memories: tuple[Memory, ...]
    entries: tuple[EntryAddress, ...]
    marks: tuple[RelationRow, ...]
    """The relations of the memories when the plan was made."""
    record: r.MemoryForgotten
    also: tuple[Statement, ...]
    watched: tuple[bytes, ...]
    """Objects that may become unreferenced."""
    elsewhere: OtherCopies
    texts: tuple[str, ...]
    """The texts to look for elsewhere."""
    token: str = ""
    """Identifies the scrub of the store's files that is due after the commit."""
    remnants: RemnantSearch = RemnantSearch()
    """The bytes to look for in those files."""
    archived: tuple[LocatedMemory, ...] = ()
    """Archived memories that pass the filter. Removed after the commit; a killed `forget` finds them again."""

    @property
    def ids(self) -> tuple[str, ...]:
        return self.record.ids


class _FileErasures(msgspec.Struct):
    """Changes to files, made before the commit. If the commit fails, all of them are repeated."""

    redacted: RedactionResult | None = None
    erased: dict[TextOccurrence, None] = msgspec.field(default_factory=dict)
    left: tuple[TextOccurrence, ...] = ()


def forget(
    engine: Engine, which: ForgetSelection, *, everywhere: bool, redactor: DocumentRedactor, reason: str, by: str | None
) -> Protocol[ForgetResult]:
    """Erase memories, and a text wherever else it occurs. Takes effect at once, even inside a step."""
    check_not_deciding()
    told = check_storable_name(reason, "a reason"), check_person(by)
    waited = discard_pending(engine, which)
    if waited and which.ids:
        which = msgspec.structs.replace(
            which, ids=tuple(memory_id for memory_id in which.ids if memory_id not in waited)
        )
        if not which.ids:
            return ForgetResult(waited)
    try:
        done = yield from _forget_selected(engine, which, everywhere, redactor, told)
        return msgspec.structs.replace(done, ids=(*waited, *done.ids)) if waited else done
    finally:
        redactor.release()


def _forget_selected(
    engine: Engine, which: ForgetSelection, everywhere: bool, redactor: DocumentRedactor, told: tuple[str, str]
) -> Protocol[ForgetResult]:
    known: bool = yield Read(engine.is_known)
    files = _FileErasures()
    while known:
        plan: _ErasurePlan | None = yield Read(_plan_erasure, (engine, which, everywhere, *told))
        if plan is None:
            break
        if files.redacted is None:
            files.redacted = yield from (redactor.redact if everywhere else redactor.find)(plan.texts)
            if files.redacted.paths and everywhere:
                continue  # their relations have changed: plan again
        yield Read(_change_files, (engine, plan, everywhere, files))
        if plan.elsewhere.first:
            yield from land(engine, Site.STATE, plan.elsewhere.first)
        try:
            gone = yield from _commit_erasure(engine, plan)
        except _MemoriesChanged:
            continue
        redactor.release()
        done: ForgetResult = yield Read(_finish, (engine, plan, gone, everywhere, files))
        return done
    return ForgetResult()


def _commit_erasure(engine: Engine, plan: _ErasurePlan) -> Protocol[Sequence[bytes]]:
    """Commit the erasure, if there is anything to erase. Returns the objects that were deleted with it."""
    if not plan.entries and not plan.also:
        return ()
    unit = yield from commit_to_process_stream(engine, partial(_EraseMemories, engine, plan))
    for which in plan.ids:
        find_unrecorded_uses(engine).pop(which, None)
    drop_cached(engine)
    drop_cached_senses()
    return unit.gone


def forget_some(engine: Engine, ids: Sequence[str], reason: str) -> Protocol[None]:
    """Erase memories that no rule keeps, without searching for copies. Some may be gone already."""
    while True:
        found: dict[str, Memory] = yield Read(find_by_id, (engine, ids))
        if not found:
            return
        plan: _ErasurePlan = yield Read(
            _plan_without_text_search, (engine, list(found.values()), (reason, engine.name))
        )
        yield Read(vector_index.erase, (engine, plan.ids))
        try:
            yield from _commit_erasure(engine, plan)
        except _MemoriesChanged:
            continue
        return


def _plan_without_text_search(engine: Engine, found: Sequence[Memory], told: tuple[str, str]) -> _ErasurePlan:
    entries, marks = _entries_of(engine, found, ())
    return _draw_up_plan(engine, found, tuple(entries), marks, OtherCopies(), told)


def _change_files(engine: Engine, plan: _ErasurePlan, everywhere: bool, files: _FileErasures) -> None:
    """Change files outside the store first: a process killed before the commit finds the memories and starts over."""
    vector_index.erase(engine, plan.ids)
    looking = TextSearch(engine, plan.texts)
    found = drop_duplicates(looking.archives(archive.folder_of(engine.store)))
    changed, others = _redact_archives(engine, looking, found, plan) if everywhere else ([], found)
    files.erased.update(dict.fromkeys(changed))
    redacted = files.redacted or RedactionResult()
    traces = [TextOccurrence("file", path) for path in redacted.files]
    files.erased.update(dict.fromkeys(traces if everywhere else ()))
    listed = () if everywhere else (*traces_of(plan.archived), *traces)
    files.left = tuple(dict.fromkeys((*others, *listed)))


def _redact_archives(
    engine: Engine, looking: TextSearch, found: Sequence[TextOccurrence], plan: _ErasurePlan
) -> tuple[list[TextOccurrence], list[TextOccurrence]]:
    _, others = find_dropped_ids(engine) if found else (frozenset(), frozenset())
    return redact_archives(looking, found, {memory.line.id for memory in plan.archived}, others)


def _finish(
    engine: Engine, plan: _ErasurePlan, gone: Sequence[bytes], everywhere: bool, files: _FileErasures
) -> ForgetResult:
    """Finish after the commit: rebuild views, delete unreferenced values, scrub the files."""
    if plan.elsewhere.erased:
        rebuild(engine.store)
    files.erased.update(dict.fromkeys(strike(plan.archived) if everywhere else ()))
    dropped = len(gone) + (object_gc.collect(engine.store).objects if everywhere else 0)
    note = engine.store.scrub(plan.remnants.exclude_deleted(gone), plan.token)
    erased, left = (*plan.elsewhere.erased, *files.erased), (*plan.elsewhere.left, *files.left)
    redacted = files.redacted or RedactionResult()
    notes = (*plan.elsewhere.notes, *filter(None, [note, vector_index.note(engine, plan.ids)]), *redacted.notes)
    return ForgetResult(plan.ids, len(plan.entries), dropped, left, erased, (*notes, *_note_unsearched(plan, left)))


def _note_unsearched(plan: _ErasurePlan, left: Sequence[TextOccurrence]) -> Iterator[str]:
    """Yield notes about what the search could not cover."""
    short = sum(1 for memory in plan.memories if len(memory.text.strip().encode()) < SEARCHED_MIN)
    if short:
        which = "a text was" if short == 1 else f"{short} texts were"
        yield f"{which} too short to search for elsewhere: fewer than {SEARCHED_MIN} bytes"
    if len(left) >= TRACES_MAX:
        yield f"the text is in more than the {TRACES_MAX:,} places that are listed"


def _plan_erasure(
    engine: Engine, which: ForgetSelection, everywhere: bool, reason: str, by: str
) -> _ErasurePlan | None:
    found, seen = select_memories(engine, which)
    put_away = find_archived(engine, which.query)
    if not found and not seen and not put_away and not which.text:
        return None
    texts = [which.text] if which.text else _select_search_texts([*found, *(memory.line for memory in put_away)])
    looking = TextSearch(engine, texts)
    entries, marks = _entries_of(engine, found, seen)
    others = list(looking.entries(frozenset(entries)))
    beside = list(looking.search_outside_journal())
    if everywhere:
        also = {record.id for _, record in others if isinstance(record, r.MemoryKept) and record.owner == engine.stream}
        found += list(find_by_id(engine, sorted(also)).values())
        entries, marks = _entries_of(engine, found, seen)
        others = [pair for pair in others if pair[0].entry not in entries]
        more = _add_outside_copies(sort_other_copies(engine, looking, others), beside, _find_derived(found, marks))
        entries |= {trace.entry: None for trace in more.erased if trace.entry != NOWHERE}
    else:
        traces = [trace for trace, _ in others] + beside
        more = OtherCopies(left=tuple(drop_duplicates(iter([*traces, *_find_derived(found, marks, traces)]))))
    plan = _draw_up_plan(engine, found, tuple(entries), marks, more, (reason, by))
    stripped = tuple(text.strip() for text in texts)
    token = engine.store.clock.salt().hex() if plan.also else ""
    return msgspec.structs.replace(
        plan,
        texts=stripped,
        token=token,
        also=(*plan.also, *(engine.store.scrub_note(token) if token else ())),
        remnants=remnants_of(engine, found, stripped, plan.watched),
        archived=tuple(put_away),
    )


def _select_search_texts(found: Iterable[Memory | ArchivedMemory]) -> list[str]:
    """Return the texts that are long enough to search for elsewhere."""
    return list(dict.fromkeys(memory.text for memory in found if len(memory.text.encode()) >= SEARCHED_MIN))


def select_memories(engine: Engine, which: ForgetSelection) -> tuple[list[Memory], list[RelationRow]]:
    """Return the selected memories, and the repetitions of other memories that the source has made."""
    if which.text:
        return [memory for memory in list_memories(engine, MemoryQuery(all=True)) if which.text in memory.text], []
    if which.query is None:
        return _read_named(engine, which.ids), []
    return list_memories(engine, which.query), _find_repetitions(engine, which.query.source)


def _add_outside_copies(
    more: OtherCopies, beside: Sequence[TextOccurrence], made: Sequence[TextOccurrence]
) -> OtherCopies:
    """Add the occurrences outside the journal, and erase those that may go."""
    erased = (*more.erased, *(trace for trace in beside if not trace.left))
    left = (*more.left, *(trace for trace in beside if trace.left), *made)
    return msgspec.structs.replace(more, erased=erased, left=left)


def _find_derived(
    found: Sequence[Memory], marks: Sequence[RelationRow], told: Sequence[TextOccurrence] = ()
) -> list[TextOccurrence]:
    """Return memories derived from the forgotten ones without their literal text: they may rephrase it."""
    going = {memory.id for memory in found} | {trace.what for trace in told if trace.kind == "memory"}
    made = dict.fromkeys(row.id for row in marks if row.what == "derived" and row.id not in going)
    left = "it was derived from a forgotten memory, and may rephrase it: forget it too if it does"
    return [TextOccurrence("memory", which, left=left) for which in made]


def _read_named(engine: Engine, ids: Sequence[str]) -> list[Memory]:
    found = find_by_id(engine, ids)
    for which in ids:
        if which not in found:
            raise MemoryNotFound(f"agent {engine.name!r} has no memory {which!r}")
    return list({memory.id: memory for memory in found.values()}.values())


def _find_repetitions(engine: Engine, source: str) -> list[RelationRow]:
    """Return the repetitions of memories that a source has made."""
    rows = engine.store.read("memories_repeated_by", (engine.stream, source)) if source else []
    return [RelationRow(*row) for row in rows]


def _entries_of(
    engine: Engine, found: Iterable[Memory], seen: Sequence[RelationRow]
) -> tuple[dict[EntryAddress, None], list[RelationRow]]:
    """Return the entries that hold memories or repeat them, and all relations of the memories."""
    ids = {memory.id: memory.entry for memory in found}
    marks = list(dict.fromkeys([*marks_between(engine, list(ids)), *seen]))
    again = [(row.stream, row.seq) for row in marks if row.what == "again" and (row.id in ids or row in seen)]
    return dict.fromkeys([*ids.values(), *again]), marks


def _draw_up_plan(
    engine: Engine,
    found: Sequence[Memory],
    entries: Sequence[EntryAddress],
    marks: Sequence[RelationRow],
    more: OtherCopies,
    told: tuple[str, str],
) -> _ErasurePlan:
    owner, ids = engine.stream, tuple(memory.id for memory in found)
    also, watched = list[Statement](), dict[bytes, None]()
    dropped = (
        objects.DroppedVersions(engine.store) if more.erased else ()
    )  # the values of deleted keys may be gone already
    for stream, seq in entries:
        entry = read_entry(engine.store, stream, seq)
        assert entry is not None
        if entry.body is not None:
            also.append(Statement("erase_entry", (stream, seq, chain.body_digest(entry.body))))
            for packed in objects.iterate_packed(r.decode(entry.kind, entry.body), dropped):
                watched.update(dict.fromkeys(references(engine.store, packed)))
    also += pieces.unindex_statements(owner, ids)
    also += [Statement("drop_memory_uses", (owner, which)) for which in ids]
    if more.erased:
        also.append(Statement("put_meta", ("stale", b"\x01")))  # the next process to open the store rebuilds the views
    if any(trace.kind == SNAPSHOT for trace in more.erased):
        also += [Statement("note_lost_snapshots"), Statement("clear_replay_snapshots")]
    record = r.MemoryForgotten(owner, ids, tuple(entries), *told, *_consequences(engine, ids, marks))
    return _ErasurePlan(tuple(found), tuple(entries), tuple(marks), record, tuple(also), tuple(watched), more, ())


def _consequences(
    engine: Engine, ids: Sequence[str], marks: Sequence[RelationRow]
) -> tuple[tuple[str, ...], tuple[SuccessorErased, ...]]:
    """Return the other memories concerned, and those that stay superseded although their successor is erased."""
    going = set(ids)
    touched = dict.fromkeys(
        memory_id for row in marks for memory_id in (row.id, row.other) if memory_id and memory_id not in going
    )
    withdrawn = {row.id for row in marks if row.what == "withdrawn"}
    ended = [
        SuccessorErased(row.id, row.at, row.valid)
        for row in marks
        if row.what == "superseded" and row.other in going and row.id not in going and row.other not in withdrawn
    ]
    return tuple(touched), tuple(ended)


class _EraseMemories(UnitOfWork[int]):
    """Erases everything in one transaction, so that no memory is ever half erased."""

    site = Site.FORGET
    erases = long = True

    def __init__(self, engine: Engine, plan: _ErasurePlan, head: StreamHead, signer: Signer | None) -> None:
        self.lane = head.stream
        self._engine = engine
        self._plan = plan
        self._head = head
        self._signer = signer
        gone = frozenset(plan.entries)
        watched = object_gc.ExactFilter(plan.watched)
        self._marks = (
            object_gc.mark_live(engine.store, forgotten=lambda *place: place in gone, watched=watched)
            if plan.watched
            else None
        )
        self._append: Append | None = None
        self.gone: Sequence[bytes] = ()

    def script(self) -> Script[int]:
        plan, owner = self._plan, self._engine.stream
        ids = encode_texts(plan.ids)
        [_, marks] = yield [
            Statement("lock_namespace", (owner, "memory")),
            Statement("memory_relations_of", (owner, ids)),
        ]
        if not {RelationRow(*row) for row in marks} <= set(plan.marks):
            raise _MemoriesChanged
        yield from self._check_unreferenced()
        also = list(plan.also)
        if self._marks is not None:
            self.gone = yield from object_gc.select_unused(self._marks, plan.watched)
            also += [Statement("drop_object", (identity,)) for identity in self.gone]
        clock = self._engine.store.clock
        self._append = Append(self.site, self._head, [plan.record], clock, also=also, signer=self._signer)
        return (yield from self._append.script())

    def _check_unreferenced(self) -> Script[None]:
        """Raise if a finished run was forked since the plan was made: the fork needs its entries."""
        relied_on = self._plan.elsewhere.relied_on
        if relied_on:
            yield [Statement("lock_forks", (stream,)) for stream, _ in relied_on]
            found = yield [Statement("forks_of", (stream,)) for stream, _ in relied_on]
            if [tuple(stream for stream, *_ in rows) for rows in found] != [forks for _, forks in relied_on]:
                raise _MemoriesChanged

    def settle(self, committed: bool) -> None:
        if self._append is not None:
            self._append.settle(committed)
