"""Memories as the caller sees them: stored ones, and those that the enclosing step has not committed yet."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from perdure import records as r
from perdure.errors import MemoryNotFound
from perdure.journal import objects
from perdure.journal.fact_intervals import SupersessionChains
from perdure.journal.memory_writes import SaveMemory
from perdure.kernel.protocol import Protocol, Read
from perdure.kernel.scope import discard_writes, innermost_buffer, list_buffered_writes
from perdure.memory import read
from perdure.memory.arguments import ForgetSelection
from perdure.memory.results import EVER, Memory, MemoryQuery
from perdure.store.base import Statement
from perdure.values.clock import moment

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine


def get(engine: Engine, which: str) -> Protocol[Memory]:
    """Return one memory. Inside a body this includes its uncommitted ones."""
    for new_memory in list_uncommitted(engine):
        if new_memory.kept.id == which:
            return preview_memory(new_memory, engine.store.clock.wall_ms())
    found: Memory = yield Read(read.get, (engine, which))
    return found


def list_memories(engine: Engine, query: MemoryQuery, count: int) -> Protocol[list[Memory]]:
    """Return the memories that pass a filter, newest first."""
    keeps = list_uncommitted(engine)
    if not keeps:
        stored: list[Memory] = yield Read(read.list_memories, (engine, query, count))
        return stored
    now = engine.store.clock.wall_ms()
    keeps = yield Read(resolve_ends, (engine, keeps))
    over = find_replaced(keeps, query, now)
    found: list[Memory] = yield Read(read.list_memories, (engine, query, min(count + len(over), EVER)))
    mine = [
        preview_memory(new_memory, now) for new_memory in reversed(keeps) if passes_filter(new_memory.kept, query, now)
    ]
    return [memory for memory in (*mine, *found) if memory.id not in over][:count]


def list_uncommitted(engine: Engine) -> list[SaveMemory]:
    """Return the uncommitted memories of the enclosing scopes, in order."""
    return _select_memory_writes(engine, list_buffered_writes(engine.store))


def resolve_ends(engine: Engine, keeps: Sequence[SaveMemory]) -> list[SaveMemory]:
    """Resolve when each uncommitted memory ends if it is committed now; the commit decides again."""
    if not any(new_memory.kept.supersedes for new_memory in keeps):
        return list(keeps)
    chains = SupersessionChains(engine.stream, [new_memory.kept for new_memory in keeps])
    while looks := chains.next_queries():
        chains.add_rows(looks, engine.store.read_all(looks))
    return [msgspec.structs.replace(new_memory, kept=chains.complete(new_memory.kept)) for new_memory in keeps]


def find_in_buffer(engine: Engine, ids: Collection[str]) -> dict[str, Memory]:
    """Return those of some memories that are in the current buffer. Later writes to it may refer to them."""
    room, found = innermost_buffer(engine.store), dict[str, Memory]()
    for ask in reversed(room.asks) if room is not None else ():
        if len(found) == len(ids):
            break
        if isinstance(ask, SaveMemory) and ask.kept.id in ids and ask.kept.owner == engine.stream:
            found[ask.kept.id] = preview_memory(ask, engine.store.clock.wall_ms())
    return found


def discard_pending(engine: Engine, which: ForgetSelection) -> tuple[str, ...]:
    """Remove uncommitted memories that match a selection from their buffers. Nobody else has seen them."""
    now = engine.store.clock.wall_ms()
    meant = [new_memory for new_memory in list_uncommitted(engine) if _is_meant(new_memory, which, now)]
    if meant:
        discard_writes(engine.store, meant)
    return tuple(new_memory.kept.id for new_memory in meant)


def _is_meant(keep: SaveMemory, which: ForgetSelection, now: int) -> bool:
    if which.text:
        return which.text in preview_memory(keep, now).text
    return keep.kept.id in which.ids if which.query is None else passes_filter(keep.kept, which.query, now)


def refuse_around(engine: Engine, which: str) -> None:
    """Raise for a memory in an outer buffer: it is committed later or never, so this scope cannot refer to it."""
    if any(new_memory.kept.id == which for new_memory in list_uncommitted(engine)):
        raise MemoryNotFound(
            f"memory {which!r} belongs to the enclosing item, which is committed after this step",
            hint="refer to it from the item itself, or remember it in this step",
        )


def _select_memory_writes(engine: Engine, asks: Iterable[object]) -> list[SaveMemory]:
    keeps = [ask for ask in asks if isinstance(ask, SaveMemory)]
    return [new_memory for new_memory in keeps if new_memory.kept.owner == engine.stream] if keeps else []


def passes_filter(kept: r.MemoryKept, query: MemoryQuery, now: int) -> bool:
    """Return whether a memory committed now would pass a filter; mirrors `memories_page`."""
    pairs = [
        (query.kind, kept.kind),
        (query.about, kept.about),
        (query.user, kept.user),
        (query.source, kept.source),
        (query.run, kept.run),
    ]
    fits = all(not want or want == has for want, has in pairs) and set(query.tags) <= set(kept.tags)
    if not fits or kept.trust < query.min_trust or not query.since <= kept.valid_from < query.until:
        return False
    return query.all or _counts(kept, query, now)


def _counts(kept: r.MemoryKept, query: MemoryQuery, now: int) -> bool:
    at = query.as_of or query.known_at or now
    held = not kept.valid_to or kept.valid_to > at or (not query.as_of and kept.kind == "episodic")
    held = held and all(successor.valid > at for successor in kept.followed)
    later = not query.as_of and (kept.kind == "episodic" or kept.valid_from <= now or query.since > at)
    begun = kept.valid_from <= at or later
    return now <= (query.known_at or EVER) and held and begun and (not kept.expires or kept.expires > at)


def find_replaced(keeps: Iterable[SaveMemory], query: MemoryQuery, now: int) -> set[str]:
    """Return the memories that are no longer current for a query once these are committed.

    One that becomes valid only later supersedes nothing yet.
    """
    if query.all or 0 < query.known_at < now:
        return set()
    at = query.as_of or query.known_at or now
    return {old for new_memory in keeps if new_memory.kept.valid_from <= at for old in new_memory.kept.supersedes}


def preview_memory(keep: SaveMemory, now: int) -> Memory:
    """Return the memory that an uncommitted write will create, as far as it is known."""
    kept = keep.kept
    return Memory(
        id=kept.id,
        text=_decode(kept.value, keep.objects),
        kind=kept.kind,
        about=kept.about,
        user=kept.user,
        tags=kept.tags,
        source=kept.source,
        trust=kept.trust,
        importance=kept.importance,
        valid_from=moment(kept.valid_from),
        valid_to=moment(kept.valid_to) if kept.valid_to else None,
        recorded=moment(now),
        expires=moment(kept.expires) if kept.expires else None,
        meta=_decode(kept.meta, keep.objects) if kept.meta else {},
        supersedes=kept.supersedes,
        contradicts=kept.contradicts,
        derived_from=kept.derived,
        run=kept.run,
        writer=kept.writer,
        thread=kept.thread,
    )


def _decode(packed: bytes, made: Sequence[Statement]) -> Any:
    return objects.decode_packed(
        packed, [statement for statement in made if statement.args[0] == objects.reference(packed)]
    )
