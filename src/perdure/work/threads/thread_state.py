"""`thread.state`: shared by the turns of a thread. A turn sees it as it was at its start, with its own writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perdure import records as r
from perdure.data import state
from perdure.errors import RunBusy, VersionConflict
from perdure.journal import objects
from perdure.journal.agent_writes import SetKey
from perdure.kernel.names import check_storable_name
from perdure.kernel.protocol import Protocol, Read
from perdure.kernel.scope import current_frame, frame_of
from perdure.platform.failpoints import Site
from perdure.run.core import RunCore, core_of
from perdure.run.state_copies import handed_out
from perdure.run.turn_start import snapshot_in
from perdure.run.writes import decode_written, list_buffered_writes
from perdure.store.rows import require_run_row
from perdure.work.threads import conversations
from perdure.work.threads.conversations import ThreadIndex, read_index
from perdure.work.threads.turn import LastTurn, read_last_turn

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

DELETED: Any = object()


def turn_here(engine: Engine, thread: str) -> RunCore | None:
    """Return the turn of a thread that the caller is in."""
    frame = current_frame()
    while frame is not None:
        run = core_of(frame)
        same = run.engine.name == engine.name and run.store is engine.store
        if same and run.id.rpartition("#")[0] == thread and snapshot_in(run.ledger) is not None:
            return run
        frame = frame.parent
    return None


def read_state(engine: Engine, thread: str) -> dict[str, Any]:
    """Return the state of a thread: in a turn, as of its start and with its own writes; else the latest."""
    run = turn_here(engine, thread)
    if run is None:
        return read_index(engine, thread).state
    seen: dict[str, Any] = run.unpack(snapshot_in(run.ledger) or b"")
    for key, packed in _written(run).items():
        if packed:
            seen[key] = decode_written(run, packed)
        else:
            seen.pop(key, None)
    return seen


def read_key(engine: Engine, thread: str, key: str) -> Any:
    """Return one value. A turn notices when the code changes its copy and does not write it back."""
    run = turn_here(engine, thread)
    if run is None:
        return read_state(engine, thread)[key]
    return handed_out(
        run, f"thread.state[{key!r}]", lambda: (_written(run).get(key, b""), read_state(engine, thread)[key])
    )


def _written(run: RunCore) -> dict[str, bytes]:
    """Return what the turn has written to the state of its thread; empty bytes for what it has deleted."""
    waiting = {one.key: one.value for one in list_buffered_writes(run) if one.op == r.WriteOp.THREAD}
    return {**run.view.thread, **waiting}


def write_state(engine: Engine, thread: str, key: str, value: Any) -> Protocol[None]:
    """Write a key of the thread's state, or delete it: in a turn as a recorded operation, else at once."""
    check_storable_name(key, "a key", most=256)
    yield Read(engine.ensure_agent)
    run = turn_here(engine, thread)
    if run is not None:
        yield from _write_in_turn(run, thread, key, value)
    else:
        yield from _write_outside(engine, thread, key, value)


def _ask(engine: Engine, thread: str, key: str, value: Any) -> SetKey:
    if value is DELETED:
        return conversations.state_drop(engine, thread, key)
    return conversations.state_write(engine, thread, key, value)


def _write_in_turn(run: RunCore, thread: str, key: str, value: Any) -> Protocol[None]:
    frame, ask = frame_of(run), _ask(run.engine, thread, key, value)
    made = r.RunWrite(r.WriteOp.THREAD, key, ask.packed)
    if frame.buffer is not None:
        run.check_not_left()
        frame.buffer.add(made, ask.objects)
        frame.buffer.asks.append(ask)
        return
    nth, instead = frame.count(f"\0write {r.WriteOp.THREAD}", key.encode()), 0
    recorded = run.ledger.find_write(frame.path, r.WriteOp.THREAD, key, nth)
    if recorded is not None:
        shown = None if value is DELETED else value
        if (yield from run.compare(f"thread.state[{key!r}]", recorded.value, shown)):
            run.land(frame, (recorded,))
            return
        instead = nth + 1
    yield from run.commit(Site.WRITE, r.Wrote(frame.path, made, instead=instead), objects=ask.objects, asks=[ask])
    run.land(frame, (made,))


def _write_outside(engine: Engine, thread: str, key: str, value: Any) -> Protocol[None]:
    while True:
        index: ThreadIndex = yield Read(read_index, (engine, thread))
        last: LastTurn | None = yield Read(read_last_turn, (engine, index))
        if last is not None and last.busy:
            raise RunBusy(f"turn {last.number} of thread {thread!r} is open in {last.run.holder}: its state is in use")
        asks = [_ask(engine, thread, key, value)]
        if not index.known:
            asks += conversations.head_write(engine, index)
        try:
            yield from state.commit(engine, asks, [conversations.require_unchanged(engine, index)])
        except VersionConflict:
            continue  # a turn has begun meanwhile, or somebody else has written
        return


def state_after(engine: Engine, thread: str, number: int) -> dict[str, Any]:
    """Return the state of a thread after a turn: what the next one saw at its start, or the latest."""
    index = read_index(engine, thread)
    if number >= index.turns:
        return index.state
    from perdure.journal.lineage import events_of
    from perdure.run.ledger import Ledger

    run = require_run_row(engine.store, engine.name, conversations.run_id_of(engine, index, number + 1))
    snapshot = snapshot_in(Ledger(events_of(engine.store, run.stream, fork=run.is_fork)))
    seen: dict[str, Any] = objects.unpack(engine.store, snapshot or b"")
    return seen
