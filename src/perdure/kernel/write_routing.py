"""The one way an agent's write lands: with the enclosing step, effect or item, or at once in this process's stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from perdure import records as r
from perdure.errors import Abandoned
from perdure.journal.agent_writes import AgentWrite, AppendAgentWrites, RequireAtHome
from perdure.journal.append import Signer, StreamHead
from perdure.kernel.open_stream import commit_to_process_stream
from perdure.kernel.protocol import Protocol
from perdure.kernel.scope import DRAFTS, WriteBuffer, current_frame, innermost_buffer
from perdure.platform.failpoints import Site
from perdure.store.base import check_not_deciding

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine


def land(engine: Engine, site: Site, asks: Sequence[AgentWrite]) -> Protocol[tuple[r.AgentChange, ...]]:
    """Commit writes of the agent at once, in the stream of this process."""

    def make(head: StreamHead, signer: Signer | None) -> AppendAgentWrites:
        return AppendAgentWrites(site, head, [r.Landed(())], engine.store, asks, signer=signer)

    return (yield from commit_to_process_stream(engine, make)).landed


def write(engine: Engine, site: Site, asks: Sequence[AgentWrite]) -> Protocol[Sequence[r.AgentChange]]:
    """Write to the agent: now, or with the enclosing body. In the latter case the result is still empty."""
    buffer = enclosing_buffer(engine)
    if buffer is None:
        return (yield from land(engine, site, asks))
    buffer.asks += asks
    return ()


def enclosing_buffer(engine: Engine) -> WriteBuffer | None:
    """Return the buffer of the enclosing body or item, if writes can land with it."""
    check_not_deciding()
    frame = current_frame()
    if frame is None or frame.run.store is not engine.store:
        return DRAFTS.get(engine.store) if DRAFTS else None
    if not frame.alive:
        raise Abandoned
    buffer = innermost_buffer(engine.store)
    if buffer is not None and frame.run.engine.name != engine.name and engine.is_known():
        buffer.asks.append(RequireAtHome(engine.stream))
    return buffer
