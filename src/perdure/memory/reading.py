"""Reading memories: by which, by a filter, by what they are about, and what was said around them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from .. import codec, objects
from ..clock import moment
from ..errors import MemoryNotFound
from ..journal.fold_memories import listed as in_json
from ..store.base import Statement
from .found import EVER, Memory, Query

if TYPE_CHECKING:
    from ..engine import Engine

Row = tuple[Any, ...]
_ASKED_MAX = 500
"""Ids of one query."""


class Kept(msgspec.Struct, frozen=True):
    """A row of the view, as every query of memories gives it."""

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


class Marks(msgspec.Struct):
    """What entries say of one memory."""

    supersedes: list[str] = msgspec.field(default_factory=list)
    superseded_by: list[tuple[str, int]] = msgspec.field(default_factory=list)
    """Each with the time from which on."""
    contradicts: list[str] = msgspec.field(default_factory=list)
    derived: list[str] = msgspec.field(default_factory=list)
    withdrawn: bool = False


def get(engine: Engine, which: str) -> Memory:
    """One memory, whatever has become of it; raises when there is none, or it was forgotten."""
    found = by_id(engine, [which])
    if not found:
        raise MemoryNotFound(f"agent {engine.name!r} has no memory {which!r}")
    return found[which]


def by_id(engine: Engine, ids: Sequence[str]) -> dict[str, Memory]:
    """Some of them, by the ids that were asked for: one that was known before has the memory that it is."""
    if not engine.is_known() or not ids:
        return {}
    rows = [row for part in _parts(ids) for row in engine.store.read("memories_by_id", (engine.stream, in_json(part)))]
    found = {it.id: it for it in made(engine, rows)}
    missing = [which for which in dict.fromkeys(ids) if which not in found]
    if not missing:
        return found
    pairs = [
        pair for part in _parts(missing) for pair in engine.store.read("memories_again", (engine.stream, in_json(part)))
    ]
    first = by_id(engine, list(dict.fromkeys(which for _, which in pairs))) if pairs else {}
    return {**found, **{again: first[which] for again, which in pairs if which in first}}


def listed(engine: Engine, query: Query, count: int = EVER) -> list[Memory]:
    """Those that pass a filter, the newest first."""
    if not engine.is_known():
        return []
    return made(engine, rows_of(engine, query, count))


def rows_of(engine: Engine, query: Query, count: int = EVER) -> list[Row]:
    """The same as the view has them."""
    args = (*filter_of(engine, query), count)
    if query.about:
        return engine.store.read("memories_about", (engine.stream, query.about, *args))
    return engine.store.read("memories_page", (engine.stream, *args))


def filter_of(engine: Engine, query: Query) -> tuple[Any, ...]:
    """What a filter is to SQL: see `memories_page`."""
    moment = query.as_of or query.known_at or engine.store.clock.wall_ms()
    whose = (query.kind, query.user, query.source, query.run, query.min_trust)
    when = (query.since, query.until, in_json(query.tags))
    return (*whose, *when, int(query.all), query.known_at or EVER, moment, int(query.as_of > 0))


def history(engine: Engine, about: str, user: str = "") -> list[Memory]:
    """All that was ever known about something and was not forgotten, in the order of its own time."""
    found = listed(engine, Query(about=about, user=user, all=True))
    return sorted(found, key=lambda it: (it.valid_from, it.recorded, it.id))


def contradictions(engine: Engine, about: str, user: str) -> list[tuple[Memory, Memory]]:
    """Pairs that count and may say the opposite, the older one first."""
    found = {it.id: it for it in reversed(listed(engine, Query(about=about, user=user)))}
    return [(found[other], it) for it in found.values() for other in it.contradicts if other in found and other < it.id]


def together(engine: Engine, it: Memory, reach: int) -> list[Memory]:
    """What was said just before and after a memory, in its order, without itself."""
    where = (engine.stream, it.thread, it.place - reach, it.place + reach)
    return [one for one in made(engine, engine.store.read("memories_together", where)) if one.id != it.id]


def passing(engine: Engine, ids: Sequence[str], filters: tuple[Any, ...], most: int = EVER) -> list[Memory]:
    """The first of some that pass a filter, in the order of the ids: what they are about, and what `filter_of` says."""
    place, wanted = {which: at for at, which in enumerate(ids)}, in_json(ids)
    rows, marks = engine.store.read_all(
        [
            Statement("memories_passing", (engine.stream, wanted, *filters)),
            Statement("standing_of", (engine.stream, wanted)),
        ]
    )
    return made(engine, sorted(rows, key=lambda row: place[row[0]])[:most], marks)


def made(engine: Engine, rows: Sequence[Row], said: Sequence[Row] | None = None) -> list[Memory]:
    """Memories from rows of the view, in their order; with what is said of them, if that was read already."""
    kept = [Kept(*row) for row in rows]
    marks = marks_of(engine, [it.id for it in kept], said)
    large = [objects.reference(it.text) for it in kept if objects.reference(it.text)]
    texts = objects.fetch_many(engine.store, large) if large else {}
    return [_made(engine, it, marks.get(it.id) or Marks(), texts) for it in kept]


def marks_between(engine: Engine, ids: Sequence[str], query: str = "marks_of") -> list[Row]:
    """What is said of memories and what they say of others, as the view has it."""
    rows = [row for part in _parts(ids) for row in engine.store.read(query, (engine.stream, in_json(part)))]
    return list(dict.fromkeys(tuple(row) for row in rows))


def marks_of(engine: Engine, ids: Sequence[str], said: Sequence[Row] | None = None) -> dict[str, Marks]:
    """What is said of memories, by id."""
    found: dict[str, Marks] = {}
    against: list[tuple[str, str]] = []
    rows = marks_between(engine, ids, "standing_of") if said is None else said
    # What has taken the place of one and was forgotten has no name any more, also where others still say it.
    gone = {(row[0], *row[3:5]) for row in rows if row[1] == "superseded" and not row[2]}
    for which, what, other, *when in rows:
        one = found.setdefault(which, Marks())
        if what == "superseded" and (not other or (which, *when[:2]) not in gone):
            one.superseded_by.append((other, when[1]))
            found.setdefault(other, Marks()).supersedes.append(which)
        elif what == "derived":
            one.derived.append(other)
        elif what == "withdrawn":
            one.withdrawn = True
        elif what == "contradicts":
            against.append((which, other))
    ended = _ended(engine, list(dict.fromkeys(other for pair in against for other in pair)))
    for which, other in against:
        if not ended & {which, other}:
            found[which].contradicts.append(other)
            found.setdefault(other, Marks()).contradicts.append(which)
    return found


def _ended(engine: Engine, ids: Sequence[str]) -> set[str]:
    """Those of them that do not count any more, or are gone."""
    rows = [row for part in _parts(ids) for row in engine.store.read("memories_by_id", (engine.stream, in_json(part)))]
    return set(ids) - {it.id for it in (Kept(*row) for row in rows) if not it.ended}


def _made(engine: Engine, it: Kept, marks: Marks, texts: Mapping[bytes, bytes]) -> Memory:
    large = objects.reference(it.text)
    return Memory(
        id=it.id,
        text=codec.decode(texts[large] if large else it.text[1:]),
        kind=it.kind,
        about=it.about,
        user=it.person,
        tags=tuple(msgspec.json.decode(it.tags, type=list[str])),
        source=it.source,
        trust=it.trust,
        importance=it.importance,
        valid_from=moment(it.valid_from),
        valid_to=_moment(_ends(it, marks)),
        recorded=moment(it.recorded),
        expires=_moment(it.expires),
        ended=_moment(it.ended),
        meta=objects.unpack(engine.store, it.meta) if it.meta else {},
        supersedes=tuple(marks.supersedes),
        superseded_by=_replaced_by(it, marks),
        contradicts=tuple(marks.contradicts),
        derived_from=tuple(marks.derived),
        withdrawn=marks.withdrawn,
        count=it.times,
        uses=it.uses,
        last_used=_moment(it.last),
        run=it.run,
        step=it.step,
        writer=it.writer,
        thread=it.thread,
        place=it.place,
        entry=(it.stream, it.seq),
    )


def _replaced_by(it: Kept, marks: Marks) -> str:
    """What holds since it does not; the newest to say so, as others that did may have been withdrawn."""
    names = [other for other, valid in marks.superseded_by if valid == it.replaced]
    return names[-1] if names and it.ended else ""


def _ends(it: Kept, marks: Marks) -> int:
    """When it does not hold any more: as was said, or since something has taken its place before."""
    ends = [at for at in (it.valid_to, 0 if marks.withdrawn else it.replaced) if at]
    return min(ends, default=0)


def _moment(milliseconds: int) -> datetime | None:
    return moment(milliseconds) if milliseconds else None


def _parts(ids: Sequence[str]) -> Iterable[Sequence[str]]:
    for start in range(0, len(ids), _ASKED_MAX):
        yield ids[start : start + _ASKED_MAX]
