"""Undoes the influence of a bad source: withdraws its memories and restores those that they had superseded.

Nothing is erased, so that the deception can be investigated. Memories derived from withdrawn ones are withdrawn too.
Facts that another named source has confirmed are stored again, attributed to that source.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from perdure import records as r
from perdure.journal.memory_writes import Retraction, SaveMemory
from perdure.kernel.names import check_storable_name
from perdure.kernel.protocol import Protocol, Read
from perdure.kernel.write_routing import write
from perdure.memory.arguments import MemoryRequest
from perdure.memory.read import find_by_id, list_memories, marks_between
from perdure.memory.remember import make_writes
from perdure.memory.results import Memory, MemoryQuery
from perdure.platform.failpoints import Site
from perdure.records.memories import SuccessorBridge
from perdure.run.answers import check_person
from perdure.store.rows import RelationRow

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine


class RollbackResult(msgspec.Struct, frozen=True):
    """The result of `rollback`."""

    withdrawn: tuple[str, ...] = ()
    """The withdrawn memories."""
    derived: tuple[str, ...] = ()
    """Those of them that were derived from others."""
    restored: tuple[str, ...] = ()
    """Memories that were superseded by them, and are current again."""
    kept: tuple[str, ...] = ()
    """Memories stored again because another source has confirmed them."""

    @property
    def count(self) -> int:
        """The number of withdrawn memories."""
        return len(self.withdrawn)

    def __bool__(self) -> bool:
        return bool(self.withdrawn)

    def __str__(self) -> str:
        if not self.withdrawn:
            return "nothing to roll back"
        also = f" ({len(self.derived)} of them made of others)" if self.derived else ""
        more = f"; {len(self.restored)} count again" if self.restored else ""
        return f"withdrew {self.count} {'memory' if self.count == 1 else 'memories'}{also}{more}"


class RollbackSelection(msgspec.Struct, frozen=True):
    """What to roll back; empty fields do not restrict it."""

    source: str = ""
    run: str = ""
    writer: str = ""
    since: int = 0
    """Only what was recorded from this time on."""


def rollback(engine: Engine, bad: RollbackSelection, reason: str, by: str | None) -> Protocol[RollbackResult]:
    """Withdraw memories, at once or with the enclosing step."""
    if not (yield Read(engine.is_known)):
        return RollbackResult()
    planned: _RollbackPlan | None = yield Read(
        _plan_rollback, (engine, bad, check_storable_name(reason, "a reason"), check_person(by))
    )
    if planned is None:
        return RollbackResult()
    yield from write(engine, Site.MEMORY, [Retraction(planned.record), *planned.keeps])
    return planned.report


def preview(engine: Engine, bad: RollbackSelection) -> RollbackResult:
    """Return what `rollback` would do. Memories that it would store again have no ids yet."""
    planned = _plan_rollback(engine, bad, "", "")
    return RollbackResult() if planned is None else msgspec.structs.replace(planned.report, kept=())


class _RollbackPlan(msgspec.Struct, frozen=True):
    record: r.MemoryWithdrawn
    keeps: tuple[SaveMemory, ...]
    report: RollbackResult


def _plan_rollback(engine: Engine, bad: RollbackSelection, reason: str, by: str) -> _RollbackPlan | None:
    own = [memory for memory in _find_from_source(engine, bad) if not memory.withdrawn]
    seen = _find_repetitions(engine, bad)
    derived = _find_derived(engine, [memory.id for memory in own])
    going = {memory.id: memory for memory in (*own, *derived)}
    marks = marks_between(engine, list(going))
    aliases = dict.fromkeys(
        [*(row.other for row in seen), *(row.other for row in marks if row.what == "again" and _is(bad, row))]
    )
    if not going and not aliases:
        return None
    again = dict(_find_confirmed(marks, going, bad))
    replaced = [row.id for row in marks if row.what == "superseded" and row.other in going and row.id not in going]
    touched = dict.fromkeys([*replaced, *(row.id for row in seen if row.id not in going)])
    why = reason or _describe(bad)
    bridged = tuple(_bridges(marks, going))
    record = r.MemoryWithdrawn(engine.stream, (*going, *aliases), why, by, tuple(touched), bridged)
    keeps = make_writes(engine, [_make_request(going[which], row) for which, row in again.items()])
    fresh = tuple(msgspec.structs.replace(new_memory, compares=False) for new_memory in keeps)
    names = tuple(memory.id for memory in derived if memory.id not in {one.id for one in own})
    over = {one.id for one in bridged if one.valid <= engine.store.clock.wall_ms()}
    restored = tuple(memory_id for memory_id in replaced if memory_id not in over)
    report = RollbackResult(tuple(going), names, restored, tuple(new_memory.kept.id for new_memory in fresh))
    return _RollbackPlan(record, fresh, report)


def _bridges(marks: Sequence[RelationRow], going: Container[str]) -> Iterator[SuccessorBridge]:
    """Yield links that bypass withdrawn memories in a chain of successors: its beginning stays superseded."""
    after = defaultdict[str, list[tuple[str, int]]](list)
    superseded = [row for row in marks if row.what == "superseded"]
    for row in superseded:
        if row.other:
            after[row.id].append((row.other, row.valid))
    for row in superseded:
        if row.other in going and row.id not in going:
            todo, seen = [row.other], {row.other}
            while todo:
                beyond = [successor for successor in after[todo.pop()] if successor[0] not in seen]
                seen.update(memory_id for memory_id, _ in beyond)
                todo += [memory_id for memory_id, _ in beyond if memory_id in going]
                yield from (
                    SuccessorBridge(row.id, memory_id, valid) for memory_id, valid in beyond if memory_id not in going
                )


def _find_from_source(engine: Engine, bad: RollbackSelection) -> list[Memory]:
    found = list_memories(engine, MemoryQuery(source=bad.source, run=bad.run, all=True))
    since = bad.since
    return [
        memory
        for memory in found
        if memory.recorded.timestamp() * 1000 >= since - 0.5 and (not bad.writer or memory.writer == bad.writer)
    ]


def _find_repetitions(engine: Engine, bad: RollbackSelection) -> list[RelationRow]:
    rows = engine.store.read("memories_repeated_by", (engine.stream, bad.source)) if bad.source and not bad.run else []
    return [relation for relation in (RelationRow(*row) for row in rows) if relation.at >= bad.since]


def _find_derived(engine: Engine, ids: Sequence[str]) -> list[Memory]:
    """Return all memories derived from some, directly or indirectly."""
    known, level = set(ids), list(ids)
    while level:
        rows = marks_between(engine, level)
        level = sorted({row.id for row in rows if row.what == "derived" and row.other in known} - known)
        known.update(level)
    found = find_by_id(engine, sorted(known - set(ids)))
    return [memory for memory in found.values() if not memory.withdrawn]


def _is(bad: RollbackSelection, row: RelationRow) -> bool:
    return row.at >= bad.since and (not bad.source or row.source == bad.source)


def _find_confirmed(
    marks: Sequence[RelationRow], going: dict[str, Memory], bad: RollbackSelection
) -> list[tuple[str, RelationRow]]:
    """Return what another named source has confirmed. A repetition without a source may only echo this one."""
    return [
        (row.id, row)
        for row in reversed(marks)
        if row.what == "again"
        and row.id in going
        and row.source
        and not _is(bad, row)
        and not going[row.id].derived_from
    ]


def _make_request(memory: Memory, row: RelationRow) -> MemoryRequest:
    valid_from, valid_to = int(memory.valid_from.timestamp() * 1000), memory.valid_to
    return MemoryRequest(
        memory.text,
        memory.kind,
        memory.about,
        memory.user,
        memory.tags,
        row.source,
        row.trust,
        memory.importance,
        valid_from,
        int(valid_to.timestamp() * 1000) if valid_to is not None else 0,
        meta=memory.meta or None,
    )


def _describe(bad: RollbackSelection) -> str:
    said = {"source": bad.source, "run": bad.run, "writer": bad.writer}
    return "rollback of " + ", ".join(f"{name} {value}" for name, value in said.items() if value)
