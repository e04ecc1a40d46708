"""Undoing what came from a bad source: memories are withdrawn, and what they had replaced counts again.

Nothing is erased: who was deceived wants to see by what. What was made of a withdrawn memory is withdrawn too. What
another source has said as well is kept once more, as that one's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from .. import records as r
from .. import state
from ..answers import whoever
from ..failpoints import Site
from ..journal.memories import Keep, Told
from ..memory_records import Bridged
from ..run.requests import Protocol, Read
from .found import Memory, Query
from .given import Wish
from .keeping import asked
from .reading import by_id, listed, marks_between

if TYPE_CHECKING:
    from ..engine import Engine

Mark = tuple[Any, ...]
"""A row of `marks_of`: id, what, other, at, valid, source, trust, stream, seq."""


class RolledBack(msgspec.Struct, frozen=True):
    """What `rollback` has done."""

    withdrawn: tuple[str, ...] = ()
    """Memories that do not count any more."""
    derived: tuple[str, ...] = ()
    """Those of them that were made of others."""
    restored: tuple[str, ...] = ()
    """What they had replaced, and counts again."""
    kept: tuple[str, ...] = ()
    """What another source has said too: kept anew, as that one's."""

    @property
    def count(self) -> int:
        """How many were withdrawn."""
        return len(self.withdrawn)

    def __bool__(self) -> bool:
        return bool(self.withdrawn)

    def __str__(self) -> str:
        if not self.withdrawn:
            return "nothing to roll back"
        also = f" ({len(self.derived)} of them made of others)" if self.derived else ""
        more = f"; {len(self.restored)} count again" if self.restored else ""
        return f"withdrew {self.count} {'memory' if self.count == 1 else 'memories'}{also}{more}"


class Bad(msgspec.Struct, frozen=True):
    """What is not believed any more; what is empty says nothing."""

    source: str = ""
    run: str = ""
    writer: str = ""
    since: int = 0
    """Recorded from then on."""


def rollback(engine: Engine, bad: Bad, reason: str, by: str | None) -> Protocol[RolledBack]:
    """Withdraw what came from somewhere, now or with the step around the caller."""
    if not (yield Read(engine.is_known)):
        return RolledBack()
    planned: _Plan | None = yield Read(_planned, (engine, bad, reason, by or whoever()))
    if planned is None:
        return RolledBack()
    yield from state.write(engine, Site.MEMORY, [Told(planned.record), *planned.keeps])
    return planned.report


def preview(engine: Engine, bad: Bad) -> RolledBack:
    """What it would do now; what would be kept anew has no ids yet."""
    planned = _planned(engine, bad, "", "")
    return RolledBack() if planned is None else msgspec.structs.replace(planned.report, kept=())


class _Plan(msgspec.Struct, frozen=True):
    record: r.MemoryWithdrawn
    keeps: tuple[Keep, ...]
    report: RolledBack


def _planned(engine: Engine, bad: Bad, reason: str, by: str) -> _Plan | None:
    own = [it for it in _from(engine, bad) if not it.withdrawn]
    seen = _seen_from(engine, bad)
    derived = _made_of(engine, [it.id for it in own])
    going = {it.id: it for it in (*own, *derived)}
    marks = marks_between(engine, list(going))
    aliases = dict.fromkeys(
        [*(row[2] for row in seen), *(row[2] for row in marks if row[1] == "again" and _is(bad, row))]
    )
    if not going and not aliases:
        return None
    again = dict(_others_word(marks, going, bad))
    replaced = [row[0] for row in marks if row[1] == "superseded" and row[2] in going and row[0] not in going]
    touched = dict.fromkeys([*replaced, *(row[0] for row in seen if row[0] not in going)])
    why = reason or _in_words(bad)
    bridged = tuple(_bridges(marks, going))
    record = r.MemoryWithdrawn(engine.stream, (*going, *aliases), why, by, tuple(touched), bridged)
    keeps = asked(engine, [_as_said_by(going[which], row) for which, row in again.items()])
    fresh = tuple(msgspec.structs.replace(it, compares=False) for it in keeps)
    names = tuple(it.id for it in derived if it.id not in {one.id for one in own})
    over = {one.id for one in bridged if one.valid <= engine.store.clock.wall_ms()}
    restored = tuple(it for it in replaced if it not in over)
    report = RolledBack(tuple(going), names, restored, tuple(it.kept.id for it in fresh))
    return _Plan(record, fresh, report)


def _bridges(marks: Sequence[Mark], going: Container[str]) -> Iterator[Bridged]:
    """Where one goes that was replaced, and what had replaced it was too, the next ones meet: both do not count."""
    after = defaultdict[str, list[tuple[str, int]]](list)
    for which, what, other, _, valid, *_ in marks:
        if what == "superseded" and other:
            after[which].append((other, valid))
    for which, what, other, *_ in marks:
        if what == "superseded" and other in going and which not in going:
            todo, seen = [other], {other}
            while todo:
                beyond = [it for it in after[todo.pop()] if it[0] not in seen]
                seen.update(it for it, _ in beyond)
                todo += [it for it, _ in beyond if it in going]
                yield from (Bridged(which, it, valid) for it, valid in beyond if it not in going)


def _from(engine: Engine, bad: Bad) -> list[Memory]:
    found = listed(engine, Query(source=bad.source, run=bad.run, all=True))
    since = bad.since
    return [
        it
        for it in found
        if it.recorded.timestamp() * 1000 >= since - 0.5 and (not bad.writer or it.writer == bad.writer)
    ]


def _seen_from(engine: Engine, bad: Bad) -> list[Mark]:
    rows = engine.store.read("marks_from", (engine.stream, bad.source)) if bad.source and not bad.run else []
    return [tuple(row) for row in rows if row[3] >= bad.since]


def _made_of(engine: Engine, ids: Sequence[str]) -> list[Memory]:
    """All that was made of some memories, and of that, and so on."""
    known, level = set(ids), list(ids)
    while level:
        rows = marks_between(engine, level)
        level = sorted({row[0] for row in rows if row[1] == "derived" and row[2] in known} - known)
        known.update(level)
    found = by_id(engine, sorted(known - set(ids)))
    return [it for it in found.values() if not it.withdrawn]


def _is(bad: Bad, row: Mark) -> bool:
    return row[3] >= bad.since and (not bad.source or row[5] == bad.source)


def _others_word(marks: Sequence[Mark], going: dict[str, Memory], bad: Bad) -> list[tuple[str, Mark]]:
    """What another source has said too, by name: who repeats it without one may only have read it here."""
    return [
        (row[0], row)
        for row in reversed(marks)
        if row[1] == "again" and row[0] in going and row[5] and not _is(bad, row) and not going[row[0]].derived_from
    ]


def _as_said_by(it: Memory, row: Mark) -> Wish:
    _, _, _, _, _, source, trust, *_ = row
    valid_from, valid_to = int(it.valid_from.timestamp() * 1000), it.valid_to
    return Wish(
        it.text,
        it.kind,
        it.about,
        it.user,
        it.tags,
        source,
        trust,
        it.importance,
        valid_from,
        int(valid_to.timestamp() * 1000) if valid_to is not None else 0,
        meta=it.meta or None,
    )


def _in_words(bad: Bad) -> str:
    said = {"source": bad.source, "run": bad.run, "writer": bad.writer}
    return "rollback of " + ", ".join(f"{name} {value}" for name, value in said.items() if value)
