"""Stores memories, at once or with the enclosing step, effect or item."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from perdure import records as r
from perdure.errors import MemoryNotFound
from perdure.journal import objects
from perdure.journal.agent_writes import AppendAgentWrites
from perdure.journal.append import Signer, StreamHead
from perdure.journal.memory_writes import SaveMemory
from perdure.kernel.open_stream import commit_to_process_stream
from perdure.kernel.protocol import Protocol, Read
from perdure.kernel.scope import current_frame
from perdure.kernel.write_routing import enclosing_buffer
from perdure.memory import pieces
from perdure.memory.arguments import MemoryRequest
from perdure.memory.facts import FactJudge, sketch_of
from perdure.memory.lifecycle.usage import flush_statements
from perdure.memory.read import find_by_id
from perdure.memory.recall.embedders import embedder_in
from perdure.memory.results import Memory
from perdure.memory.visible import find_in_buffer, preview_memory, refuse_around
from perdure.platform.failpoints import Site
from perdure.records.memories import TRUSTED
from perdure.values.clock import moment

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine


def remember(engine: Engine, wishes: Sequence[MemoryRequest]) -> Protocol[list[Memory]]:
    """Store memories, all or none. A known memory is counted and returned."""
    if not wishes:
        return []
    keeps: list[SaveMemory] = yield Read(make_writes, (engine, wishes))
    room = enclosing_buffer(engine)
    if room is not None:
        room.asks += keeps
        now = engine.store.clock.wall_ms()
        return [preview_memory(new_memory, now) for new_memory in keeps]

    used = flush_statements(engine)

    def make(head: StreamHead, signer: Signer | None) -> AppendAgentWrites:
        return AppendAgentWrites(Site.MEMORY, head, [r.Landed(())], engine.store, keeps, objects=used, signer=signer)

    yield from commit_to_process_stream(engine, make)
    ids = [new_memory.kept.id for new_memory in keeps]
    found: dict[str, Memory] = yield Read(find_by_id, (engine, ids))
    return [found[which] for which in ids if which in found]  # another process may forget one at this moment


def make_writes(engine: Engine, wishes: Sequence[MemoryRequest]) -> list[SaveMemory]:
    """Return the writes that store memories, to be committed alone or with others."""
    engine.ensure_agent()
    named_ids = [which for wish in wishes for which in (*wish.supersedes, *wish.derived_from)]
    known = _read_known(engine, list(dict.fromkeys(named_ids))) if named_ids else {}
    now = engine.store.clock.wall_ms()
    said = [
        pieces.MemoryText(wish.text, wish.valid_from or now, (wish.about, wish.user, *wish.tags)) for wish in wishes
    ]
    cuts = pieces.split_all(embedder_in(engine), said)
    return [
        _keep(
            engine,
            wish,
            cut,
            _find_memories(engine, wish.supersedes, known),
            _find_memories(engine, wish.derived_from, known),
        )
        for wish, cut in zip(wishes, cuts, strict=True)
    ]


def _read_known(engine: Engine, ids: Sequence[str]) -> dict[str, Memory]:
    """Return stored memories, and those that the enclosing body will commit."""
    here = find_in_buffer(engine, ids)
    return {**here, **find_by_id(engine, [which for which in ids if which not in here])}


def _find_memories(engine: Engine, ids: Sequence[str], known: Mapping[str, Memory]) -> list[Memory]:
    for which in ids:
        if which not in known:
            refuse_around(engine, which)
            raise MemoryNotFound(f"agent {engine.name!r} has no memory {which!r}")
    return [known[which] for which in ids]


def _keep(
    engine: Engine, wish: MemoryRequest, cut: pieces.IndexPieces, replaced: Sequence[Memory], origins: Sequence[Memory]
) -> SaveMemory:
    store, frame = engine.store, current_frame()
    run = frame.run.id if frame is not None and frame.run.store is store else ""
    now = store.clock.wall_ms()
    value, made = objects.pack(store, wish.text, "memory")
    meta, more = objects.pack(store, dict(wish.meta), "meta") if wish.meta else (b"", ())
    # Rephrasing a memory never raises its trust.
    trust = min([wish.trust, *(memory.trust for memory in origins)])
    # An untrusted memory never supersedes a trusted one: it is recorded as a contradiction.
    outweighed = [memory.id for memory in replaced if trust < TRUSTED <= memory.trust]
    which, sketch = make_id(engine), sketch_of(store.content_key, wish.text)
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
        tuple(dict.fromkeys(memory.id for memory in replaced if memory.id not in outweighed)),
        tuple(outweighed),
        tuple(dict.fromkeys(memory.id for memory in origins)),
        meta,
        run,
        "",
        wish.writer or engine.name,
        _thread(wish, run, now),
        0,
        sketch,
    )
    judge = FactJudge(wish, kept)
    return SaveMemory(
        kept,
        (*made, *more),
        judge,
        lambda record: pieces.index_statements(record, cut),
        compares=wish.kind != "episodic",
    )


def _thread(wish: MemoryRequest, run: str, now: int) -> str:
    """Return the conversation that a memory belongs to: a run, or a user and day. Facts go with those of their subject.

    The source makes no difference: it may vary between messages of one conversation.
    """
    if wish.thread:
        return wish.thread
    day = moment(wish.valid_from or now).date().isoformat()
    if wish.about and wish.kind != "episodic":
        return f"about {wish.about} {day}"
    return f"run {run}" if run else f"{day} {wish.user}".strip()


def make_id(engine: Engine) -> str:
    """Return an id that sorts by time, so that neighbours in time are close in the store, and cannot be guessed."""
    return f"m{engine.store.clock.wall_ms():011x}{engine.store.clock.salt()[:6].hex()}"
