"""Remembering: now, or with the step, effect or item around the caller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .. import objects, state
from .. import records as r
from ..clock import moment
from ..errors import MemoryNotFound
from ..failpoints import Site
from ..journal.append import Head, Signer
from ..journal.landing import Land
from ..journal.memories import Keep
from ..memory_records import TRUSTED
from ..run.open_stream import in_the_open
from ..run.requests import Protocol, Read
from ..run.scope import current
from . import pieces
from .embedders import embedder_in
from .facts import Judge, sketch_of
from .found import Memory
from .given import Wish
from .reading import by_id
from .seeing import asked_here, promised, refuse_around
from .using import written

if TYPE_CHECKING:
    from ..engine import Engine


def remember(engine: Engine, wishes: Sequence[Wish]) -> Protocol[list[Memory]]:
    """Keep memories, all or none. One that was known already is counted, and comes back as it is."""
    if not wishes:
        return []
    keeps: list[Keep] = yield Read(asked, (engine, wishes))
    room = state.waiting_room(engine)
    if room is not None:
        room.asks += keeps
        now = engine.store.clock.wall_ms()
        return [promised(it, now) for it in keeps]

    used = written(engine)

    def make(head: Head, signer: Signer | None) -> Land:
        return Land(Site.MEMORY, head, [r.Landed(())], engine.store, keeps, objects=used, signer=signer)

    yield from in_the_open(engine, make)
    ids = [it.kept.id for it in keeps]
    found: dict[str, Memory] = yield Read(by_id, (engine, ids))
    return [found[which] for which in ids if which in found]  # one may be forgotten by somebody else at this moment


def asked(engine: Engine, wishes: Sequence[Wish]) -> list[Keep]:
    """What keeps them when it lands, with whatever else lands then."""
    engine.ensure_agent()
    named_ids = [which for wish in wishes for which in (*wish.supersedes, *wish.derived_from)]
    known = _known(engine, list(dict.fromkeys(named_ids))) if named_ids else {}
    now = engine.store.clock.wall_ms()
    said = [pieces.Said(wish.text, wish.valid_from or now, (wish.about, wish.user, *wish.tags)) for wish in wishes]
    cuts = pieces.cut_all(embedder_in(engine), said)
    return [
        _keep(engine, wish, cut, _found(engine, wish.supersedes, known), _found(engine, wish.derived_from, known))
        for wish, cut in zip(wishes, cuts, strict=True)
    ]


def _known(engine: Engine, ids: Sequence[str]) -> dict[str, Memory]:
    """What is there, and what will be when this lands."""
    here = asked_here(engine, ids)
    return {**here, **by_id(engine, [which for which in ids if which not in here])}


def _found(engine: Engine, ids: Sequence[str], known: Mapping[str, Memory]) -> list[Memory]:
    for which in ids:
        if which not in known:
            refuse_around(engine, which)
            raise MemoryNotFound(f"agent {engine.name!r} has no memory {which!r}")
    return [known[which] for which in ids]


def _keep(
    engine: Engine, wish: Wish, cut: pieces.Pieces, replaced: Sequence[Memory], origins: Sequence[Memory]
) -> Keep:
    store, frame = engine.store, current()
    run = frame.run.id if frame is not None and frame.run.store is store else ""
    now = store.clock.wall_ms()
    value, made = objects.pack(store, wish.text, "memory")
    meta, more = objects.pack(store, dict(wish.meta), "meta") if wish.meta else (b"", ())
    # Trust never rises by being told again in other words.
    trust = min([wish.trust, *(it.trust for it in origins)])
    # Nor does what is not trusted take the place of what is: it stands against it.
    outweighed = [it.id for it in replaced if trust < TRUSTED <= it.trust]
    which, sketch = new_id(engine), sketch_of(store.secret, wish.text)
    kept = r.MemoryKept(
        engine.stream,
        which,
        wish.kind,
        value,
        wish.about,
        wish.user,
        wish.tags,
        wish.source,
        trust,
        wish.importance,
        wish.valid_from or now,
        wish.valid_to,
        now + int(wish.ttl * 1000) if wish.ttl else 0,
        tuple(dict.fromkeys(it.id for it in replaced if it.id not in outweighed)),
        tuple(outweighed),
        tuple(dict.fromkeys(it.id for it in origins)),
        meta,
        run,
        "",
        wish.writer or engine.name,
        _thread(wish, run, now),
        0,
        sketch,
    )
    judge = Judge(wish, kept)
    return Keep(kept, (*made, *more), judge, lambda it: pieces.indexed(it, cut), compares=wish.kind != "episodic")


def _thread(wish: Wish, run: str, now: int) -> str:
    """What it was said together with: in one run, or to one person on one day; a fact goes with others about the same.

    The source parts nothing: it may be another one for each message of a conversation.
    """
    if wish.thread:
        return wish.thread
    day = moment(wish.valid_from or now).date().isoformat()
    if wish.about and wish.kind != "episodic":
        return f"about {wish.about} {day}"
    return f"run {run}" if run else f"{day} {wish.user}".strip()


def new_id(engine: Engine) -> str:
    """By time, so that neighbours in time are neighbours in the store; and nobody can guess it."""
    return f"m{engine.store.clock.wall_ms():011x}{engine.store.clock.salt()[:6].hex()}"
