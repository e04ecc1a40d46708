"""Memories as the code sees them: what is stored, and over it what waits around the caller to land with its step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .. import objects
from ..clock import moment
from ..journal.memories import Keep
from ..run.requests import Protocol, Read
from ..run.scope import waiting
from ..store.base import Statement
from . import reading
from .found import Memory, Query

if TYPE_CHECKING:
    from ..engine import Engine


def get(engine: Engine, which: str) -> Protocol[Memory]:
    """One memory; in a body also one that it has just asked for."""
    for it in _waiting(engine):
        if it.id == which:
            return it
    found: Memory = yield Read(reading.get, (engine, which))
    return found


def listed(engine: Engine, query: Query, count: int) -> Protocol[list[Memory]]:
    """Those that pass a filter, the newest first."""
    stored: list[Memory] = yield Read(reading.listed, (engine, query, count))
    if query.as_of or query.known_at:
        return stored
    asked = [it for it in _waiting(engine) if _passes(it, query)]
    replaced = set() if query.all else {old for it in asked for old in it.supersedes}
    return [it for it in (*reversed(asked), *stored) if it.id not in replaced][:count]


def _waiting(engine: Engine) -> list[Memory]:
    """In the order in which they were asked for."""
    keeps = [ask for ask in waiting(engine.store) if isinstance(ask, Keep)]
    mine = [it for it in keeps if it.kept.owner == engine.stream] if keeps else []
    now = engine.store.clock.wall_ms()
    return [promised(it, now) for it in mine]


def _passes(it: Memory, query: Query) -> bool:
    wanted = [
        (query.kind, it.kind),
        (query.about, it.about),
        (query.user, it.user),
        (query.source, it.source),
        (query.run, it.run),
    ]
    when = it.valid_from.timestamp() * 1000
    fits = all(not want or want == has for want, has in wanted) and set(query.tags) <= set(it.tags)
    return fits and it.trust >= query.min_trust and query.since <= when < query.until


def promised(keep: Keep, now: int) -> Memory:
    """What a memory will be when it lands, as far as that is known before."""
    kept = keep.kept
    return Memory(
        id=kept.id,
        text=_opened(kept.value, keep.objects),
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
        meta=_opened(kept.meta, keep.objects) if kept.meta else {},
        supersedes=kept.supersedes,
        contradicts=kept.contradicts,
        derived_from=kept.derived,
        run=kept.run,
        writer=kept.writer,
        thread=kept.thread,
    )


def _opened(packed: bytes, made: Sequence[Statement]) -> Any:
    return objects.opened(packed, [it for it in made if it.args[0] == objects.reference(packed)])
