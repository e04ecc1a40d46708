"""Reads memories by id, by filter, by subject, and their neighbours in a conversation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.errors import MemoryNotFound
from perdure.journal import objects
from perdure.journal.project_memories import encode_texts
from perdure.memory.results import EVER, Memory, MemoryQuery
from perdure.store.base import Statement
from perdure.store.rows import RelationRow
from perdure.values import codec
from perdure.values.clock import moment

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

ViewRow = tuple[Any, ...]
_ASKED_MAX = 500
"""Maximum number of ids in one query."""


class MemoryRow(msgspec.Struct, frozen=True):
    """A row of the view, as every query of memories returns it."""

    id: str
    stream: int
    seq: int
    kind: str
    about: str
    person: str
    source: str
    writer: str
    run: str
    step: str
    tags: str
    trust: float
    importance: float
    valid_from: int
    valid_to: int
    recorded: int
    expires: int
    thread: str
    place: int
    sketch: bytes
    text: bytes
    meta: bytes
    ended: int
    replaced: int
    times: int
    uses: int
    last: int


class MemoryRelations(msgspec.Struct):
    """What other entries record about one memory."""

    supersedes: list[str] = msgspec.field(default_factory=list)
    superseded_by: list[tuple[str, int]] = msgspec.field(default_factory=list)
    """Each with the time from which it applies."""
    contradicts: list[str] = msgspec.field(default_factory=list)
    derived: list[str] = msgspec.field(default_factory=list)
    withdrawn: bool = False


def get(engine: Engine, which: str) -> Memory:
    """Return one memory, current or not. Raises if it does not exist or was forgotten."""
    found = find_by_id(engine, [which])
    if not found:
        raise MemoryNotFound(f"agent {engine.name!r} has no memory {which!r}")
    return found[which]


def find_by_id(engine: Engine, ids: Sequence[str]) -> dict[str, Memory]:
    """Return memories by the requested ids. An id of a repetition maps to the memory that it repeats."""
    if not engine.is_known() or not ids:
        return {}
    rows = [
        row for part in _parts(ids) for row in engine.store.read("memories_by_id", (engine.stream, encode_texts(part)))
    ]
    found = {memory.id: memory for memory in build_memories(engine, rows)}
    missing = [which for which in dict.fromkeys(ids) if which not in found]
    if not missing:
        return found
    pairs = [
        pair
        for part in _parts(missing)
        for pair in engine.store.read("memories_repeated", (engine.stream, encode_texts(part)))
    ]
    first = find_by_id(engine, list(dict.fromkeys(which for _, which in pairs))) if pairs else {}
    return {**found, **{again: first[which] for again, which in pairs if which in first}}


def list_memories(engine: Engine, query: MemoryQuery, count: int = EVER) -> list[Memory]:
    """Return the memories that pass a filter, newest first."""
    if not engine.is_known():
        return []
    return build_memories(engine, rows_of(engine, query, count))


def rows_of(engine: Engine, query: MemoryQuery, count: int = EVER) -> list[ViewRow]:
    """Return the rows of the memories that pass a filter, newest first."""
    args = (*filter_of(engine, query), *query.after, count)
    if query.about:
        return engine.store.read("memories_about", (engine.stream, query.about, *args))
    return engine.store.read("memories_page", (engine.stream, *args))


def filter_of(engine: Engine, query: MemoryQuery) -> tuple[Any, ...]:
    """Return the SQL parameters of a filter: see `memories_page`."""
    moment = query.as_of or query.known_at or engine.store.clock.wall_ms()
    whose = (query.kind, query.user, query.source, query.run, query.min_trust)
    when = (query.since, query.until, encode_texts(query.tags))
    return (*whose, *when, int(query.all), query.known_at or EVER, moment, int(query.as_of > 0))


def history(engine: Engine, about: str, user: str = "") -> list[Memory]:
    """Return everything ever known about a subject and not forgotten, in order of validity."""
    found = list_memories(engine, MemoryQuery(about=about, user=user, all=True))
    return sorted(found, key=lambda memory: (memory.valid_from, memory.recorded, memory.id))


def contradictions(engine: Engine, about: str, user: str) -> list[tuple[Memory, Memory]]:
    """Return pairs of current memories that may contradict each other, older one first."""
    found = {memory.id: memory for memory in reversed(list_memories(engine, MemoryQuery(about=about, user=user)))}
    return [
        (found[other], memory)
        for memory in found.values()
        for other in memory.contradicts
        if other in found and other < memory.id
    ]


def find_neighbours(engine: Engine, memory: Memory, reach: int) -> list[Memory]:
    """Return the neighbours of a memory in its conversation, in order."""
    where = (engine.stream, memory.thread, memory.place - reach, memory.place + reach)
    return [
        one for one in build_memories(engine, engine.store.read("memories_in_thread", where)) if one.id != memory.id
    ]


def filter_ids(engine: Engine, ids: Sequence[str], filters: tuple[Any, ...], most: int = EVER) -> list[Memory]:
    """Return the first of some memories that pass a filter, in the order of the ids."""
    place, wanted = {which: at for at, which in enumerate(ids)}, encode_texts(ids)
    rows, marks = engine.store.read_all(
        [
            Statement("memories_matching", (engine.stream, wanted, *filters)),
            Statement("memory_relations_but_repeats", (engine.stream, wanted)),
        ]
    )
    return build_memories(engine, sorted(rows, key=lambda row: place[row[0]])[:most], marks)


def build_memories(engine: Engine, rows: Sequence[ViewRow], said: Sequence[ViewRow] | None = None) -> list[Memory]:
    """Build memories from rows of the view, in order; `said` are their relations if already read."""
    kept = [MemoryRow(*row) for row in rows]
    marks = marks_of(engine, [memory.id for memory in kept], said)
    large = [objects.reference(memory.text) for memory in kept if objects.reference(memory.text)]
    texts = objects.fetch_many(engine.store, large) if large else {}
    return [_build_memory(engine, memory, marks.get(memory.id) or MemoryRelations(), texts) for memory in kept]


def marks_between(engine: Engine, ids: Sequence[str], query: str = "memory_relations_of") -> list[RelationRow]:
    """Return the relations of memories in both directions, as rows of the view."""
    rows = [row for part in _parts(ids) for row in engine.store.read(query, (engine.stream, encode_texts(part)))]
    return list(dict.fromkeys(RelationRow(*row) for row in rows))


def marks_of(engine: Engine, ids: Sequence[str], said: Sequence[ViewRow] | None = None) -> dict[str, MemoryRelations]:
    """Return the relations of memories, by id."""
    found: dict[str, MemoryRelations] = {}
    against: list[tuple[str, str]] = []
    if said is None:
        rows = marks_between(engine, ids, "memory_relations_but_repeats")
    else:
        rows = [RelationRow(*row) for row in said]
    # A forgotten successor has no id any more, even where other entries still name it.
    gone = {(row.id, row.at, row.valid) for row in rows if row.what == "superseded" and not row.other}
    for row in rows:
        which, what, other = row.id, row.what, row.other
        one = found.setdefault(which, MemoryRelations())
        if what == "superseded" and (not other or (which, row.at, row.valid) not in gone):
            one.superseded_by.append((other, row.valid))
            found.setdefault(other, MemoryRelations()).supersedes.append(which)
        elif what == "derived":
            one.derived.append(other)
        elif what == "withdrawn":
            one.withdrawn = True
        elif what == "contradicts":
            against.append((which, other))
    ended = _find_ended(engine, list(dict.fromkeys(other for pair in against for other in pair)))
    for which, other in against:
        if not ended & {which, other}:
            found[which].contradicts.append(other)
            found.setdefault(other, MemoryRelations()).contradicts.append(which)
    return found


def _find_ended(engine: Engine, ids: Sequence[str]) -> set[str]:
    """Return those of some memories that are no longer current, or are gone."""
    rows = [
        row for part in _parts(ids) for row in engine.store.read("memories_by_id", (engine.stream, encode_texts(part)))
    ]
    return set(ids) - {memory.id for memory in (MemoryRow(*row) for row in rows) if not memory.ended}


def _build_memory(engine: Engine, memory: MemoryRow, marks: MemoryRelations, texts: Mapping[bytes, bytes]) -> Memory:
    large = objects.reference(memory.text)
    return Memory(
        id=memory.id,
        text=codec.decode(texts[large] if large else memory.text[1:]),
        kind=memory.kind,
        about=memory.about,
        user=memory.person,
        tags=tuple(msgspec.json.decode(memory.tags, type=list[str])),
        source=memory.source,
        trust=memory.trust,
        importance=memory.importance,
        valid_from=moment(memory.valid_from),
        valid_to=_moment(_compute_end(memory, marks)),
        recorded=moment(memory.recorded),
        expires=_moment(memory.expires),
        ended=_moment(memory.ended),
        meta=objects.unpack(engine.store, memory.meta) if memory.meta else {},
        supersedes=tuple(marks.supersedes),
        superseded_by=_find_successor(memory, marks),
        contradicts=tuple(marks.contradicts),
        derived_from=tuple(marks.derived),
        withdrawn=marks.withdrawn,
        count=memory.times,
        uses=memory.uses,
        last_used=_moment(memory.last),
        run=memory.run,
        step=memory.step,
        writer=memory.writer,
        thread=memory.thread,
        place=memory.place,
        entry=(memory.stream, memory.seq),
    )


def _find_successor(memory: MemoryRow, marks: MemoryRelations) -> str:
    """Return the successor of a memory; the newest one, as others may have been withdrawn."""
    names = [other for other, valid in marks.superseded_by if valid == memory.replaced]
    return names[-1] if names and memory.ended else ""


def _compute_end(memory: MemoryRow, marks: MemoryRelations) -> int:
    """Return when a memory stops being valid: as stated, or earlier when it was superseded."""
    ends = [at for at in (memory.valid_to, 0 if marks.withdrawn else memory.replaced) if at]
    return min(ends, default=0)


def _moment(milliseconds: int) -> datetime | None:
    return moment(milliseconds) if milliseconds else None


def _parts(ids: Sequence[str]) -> Iterable[Sequence[str]]:
    for start in range(0, len(ids), _ASKED_MAX):
        yield ids[start : start + _ASKED_MAX]
