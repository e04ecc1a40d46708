"""Appends events: with the enclosing step, effect or item, or at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .. import objects
from .. import records as r
from ..failpoints import Site
from ..journal.append import Append
from ..journal.landing import Settled
from ..limits import EVENTS_OF_ENTRY_MAX
from ..run.core import RunCore
from ..run.open_stream import in_the_open
from ..run.requests import Protocol, Read
from ..run.scope import current
from ..run.writes import named, write
from ..state import waiting_room
from ..store.base import Statement
from .schemas import Noted

if TYPE_CHECKING:
    from ..engine import Engine


def append(engine: Engine, noted: Sequence[Noted]) -> Protocol[None]:
    """Append events, all or none."""
    for one in noted:
        named(one.kind, "kind of events")
    room, frame = waiting_room(engine), current()
    packed = [(one, *objects.pack(engine.store, one.value, f"event {one.kind}")) for one in noted]
    if not packed:
        return
    if room is not None and frame is not None and frame.run.engine.name == engine.name:
        for one, value, made in packed:  # buffered like `run.event`, so that both kinds of call keep program order
            room.add(r.Write(r.Op.EVENT, one.kind, value, version=one.version), made)
        return
    yield Read(engine.ensure_agent)
    owner = yield Read(lambda: engine.stream)
    run = frame.run.head.stream if frame is not None and frame.run.store is engine.store else 0
    landed = [(r.Happened(owner, one.kind, value, one.version, run), made) for one, value, made in packed]
    if room is not None:
        room.asks += [Settled(*one) for one in landed]
        return
    yield from _commit(engine, [it for it, _ in landed], [put for _, made in landed for put in made])


def _commit(engine: Engine, landed: Sequence[r.Happened], made: Sequence[Statement]) -> Protocol[None]:
    """Commit events at once, to the stream of this process. Needs no lookup, so one round trip on a server."""
    pieces = [landed[start : start + EVENTS_OF_ENTRY_MAX] for start in range(0, len(landed), EVENTS_OF_ENTRY_MAX)]
    entries = [r.Landed(tuple(piece)) for piece in pieces]
    yield from in_the_open(
        engine,
        lambda head, signer: Append(Site.EVENT, head, entries, engine.store.clock, objects=made, signer=signer),
    )


def note(run: RunCore, kind: Any, payload: Any) -> Protocol[None]:
    """`run.event`: an operation recorded by the run, so a resumed run does not repeat it."""
    noted = run.engine.kinds.noted(kind, payload)
    yield from write(run, r.Op.EVENT, noted.kind, noted.value, f"event {noted.kind}", noted.version)
