"""Memories as the code sees them: what is stored, and over it what waits around the caller to land with its step."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from .. import objects
from .. import records as r
from ..clock import moment
from ..errors import MemoryNotFound
from ..journal.chains import Chains
from ..journal.memories import Keep
from ..run.requests import Protocol, Read
from ..run.scope import current, take_back, waiting
from ..store.base import Statement
from . import reading
from .found import EVER, Memory, Query
from .given import Which

if TYPE_CHECKING:
    from ..engine import Engine


def get(engine: Engine, which: str) -> Protocol[Memory]:
    """One memory; in a body also one that it has just asked for."""
    for it in asked_for(engine):
        if it.kept.id == which:
            return promised(it, engine.store.clock.wall_ms())
    found: Memory = yield Read(reading.get, (engine, which))
    return found


def listed(engine: Engine, query: Query, count: int) -> Protocol[list[Memory]]:
    """Those that pass a filter, the newest first."""
    keeps = asked_for(engine)
    if not keeps:
        stored: list[Memory] = yield Read(reading.listed, (engine, query, count))
        return stored
    now = engine.store.clock.wall_ms()
    keeps = yield Read(chained, (engine, keeps))
    over = replaced(keeps, query, now)
    found: list[Memory] = yield Read(reading.listed, (engine, query, min(count + len(over), EVER)))
    mine = [promised(it, now) for it in reversed(keeps) if passes(it.kept, query, now)]
    return [it for it in (*mine, *found) if it.id not in over][:count]


def asked_for(engine: Engine) -> list[Keep]:
    """What an agent is to remember when what is around the caller lands, in the order in which that was said."""
    return _of(engine, waiting(engine.store))


def chained(engine: Engine, keeps: Sequence[Keep]) -> list[Keep]:
    """The same with where each ends, if it lands now; the commit decides it anew."""
    if not any(it.kept.supersedes for it in keeps):
        return list(keeps)
    chains = Chains(engine.stream, [it.kept for it in keeps])
    while looks := chains.asking():
        chains.read(looks, engine.store.read_all(looks))
    return [msgspec.structs.replace(it, kept=chains.chained(it.kept)) for it in keeps]


def asked_here(engine: Engine, ids: Collection[str]) -> dict[str, Memory]:
    """Those of some memories that will land with what is written here: they can be named, and are there by then."""
    frame, found = current(), dict[str, Memory]()
    room = frame.buffer if frame is not None and frame.run.store is engine.store else None
    for ask in reversed(room.asks) if room is not None else ():
        if len(found) == len(ids):
            break
        if isinstance(ask, Keep) and ask.kept.id in ids and ask.kept.owner == engine.stream:
            found[ask.kept.id] = promised(ask, engine.store.clock.wall_ms())
    return found


def taken_back(engine: Engine, which: Which) -> tuple[str, ...]:
    """What waits around the caller and is meant does not land: forgotten before anybody else has seen it."""
    now = engine.store.clock.wall_ms()
    meant = [it for it in asked_for(engine) if _is_meant(it, which, now)]
    if meant:
        take_back(engine.store, meant)
    return tuple(it.kept.id for it in meant)


def _is_meant(keep: Keep, which: Which, now: int) -> bool:
    if which.text:
        return which.text in promised(keep, now).text
    return keep.kept.id in which.ids if which.query is None else passes(keep.kept, which.query, now)


def refuse_around(engine: Engine, which: str) -> None:
    """Raise for a memory that waits for something which lands later, or never: what lands before cannot name it."""
    if any(it.kept.id == which for it in asked_for(engine)):
        raise MemoryNotFound(
            f"memory {which!r} waits for the end of the item around this step, which lands before it",
            hint="name it where it was remembered, or remember it in this step",
        )


def _of(engine: Engine, asks: Iterable[object]) -> list[Keep]:
    keeps = [ask for ask in asks if isinstance(ask, Keep)]
    return [it for it in keeps if it.kept.owner == engine.stream] if keeps else []


def passes(kept: r.MemoryKept, query: Query, now: int) -> bool:
    """Whether a memory that lands now is one that is asked for; as `memories_page` has it."""
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


def _counts(kept: r.MemoryKept, query: Query, now: int) -> bool:
    at = query.as_of or query.known_at or now
    held = not kept.valid_to or kept.valid_to > at or (not query.as_of and kept.kind == "episodic")
    held = held and all(it.valid > at for it in kept.followed)
    later = not query.as_of and (kept.kind == "episodic" or kept.valid_from <= now or query.since > at)
    begun = kept.valid_from <= at or later
    return now <= (query.known_at or EVER) and held and begun and (not kept.expires or kept.expires > at)


def replaced(keeps: Iterable[Keep], query: Query, now: int) -> set[str]:
    """What does not count any more for who asks this, once these have landed: what is true only later ends nothing."""
    if query.all or 0 < query.known_at < now:
        return set()
    at = query.as_of or query.known_at or now
    return {old for it in keeps if it.kept.valid_from <= at for old in it.kept.supersedes}


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
