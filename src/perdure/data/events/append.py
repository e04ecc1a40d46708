"""Appends events: with the enclosing step, effect or item, or at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from perdure import records as r
from perdure.data.events.schemas import StoredEvent, kinds_of
from perdure.journal import objects
from perdure.journal.agent_writes import UnconditionalWrite
from perdure.journal.append import Append
from perdure.kernel.names import check_storable_name
from perdure.kernel.open_stream import commit_to_process_stream
from perdure.kernel.protocol import Protocol, Read
from perdure.kernel.scope import current_frame
from perdure.kernel.write_routing import enclosing_buffer
from perdure.platform.failpoints import Site
from perdure.run.core import RunCore
from perdure.run.writes import write
from perdure.store.base import Statement
from perdure.values.limits import EVENTS_OF_ENTRY_MAX

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine


def append(engine: Engine, noted: Sequence[StoredEvent]) -> Protocol[None]:
    """Append events, all or none."""
    for one in noted:
        check_storable_name(one.kind, "kind of events")
    room, frame = enclosing_buffer(engine), current_frame()
    packed = [(one, *objects.pack(engine.store, one.value, f"event {one.kind}")) for one in noted]
    if not packed:
        return
    if room is not None and frame is not None and frame.run.engine.name == engine.name:
        for one, value, made in packed:  # buffered like `run.event`, so that both kinds of call keep program order
            room.add(r.RunWrite(r.WriteOp.EVENT, one.kind, value, version=one.version), made)
        return
    yield Read(engine.ensure_agent)
    owner = yield Read(lambda: engine.stream)
    run = frame.run.head.stream if frame is not None and frame.run.store is engine.store else 0
    landed = [(r.EventAppended(owner, one.kind, value, one.version, run), made) for one, value, made in packed]
    if room is not None:
        room.asks += [UnconditionalWrite(*one) for one in landed]
        return
    yield from _commit(engine, [record for record, _ in landed], [put for _, made in landed for put in made])


def _commit(engine: Engine, landed: Sequence[r.EventAppended], made: Sequence[Statement]) -> Protocol[None]:
    """Commit events at once, to the stream of this process. Needs no lookup, so one round trip on a server."""
    pieces = [landed[start : start + EVENTS_OF_ENTRY_MAX] for start in range(0, len(landed), EVENTS_OF_ENTRY_MAX)]
    entries = [r.Landed(tuple(piece)) for piece in pieces]
    yield from commit_to_process_stream(
        engine,
        lambda head, signer: Append(Site.EVENT, head, entries, engine.store.clock, objects=made, signer=signer),
    )


def note(run: RunCore, kind: Any, payload: Any) -> Protocol[None]:
    """`run.event`: an operation recorded by the run, so a resumed run does not repeat it."""
    noted = kinds_of(run.engine).convert_event(kind, payload)
    yield from write(run, r.WriteOp.EVENT, noted.kind, noted.value, f"event {noted.kind}", noted.version)
