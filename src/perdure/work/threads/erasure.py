"""Erases the turns that a thread has dropped: their runs, and what else is stored of the conversation.

Dropping turns is one commit, after which nobody sees them. Then each of their runs is erased in a commit of its own. A
note in the store tells which thread is not done yet, so that the next `delete` or `gc` finishes what a killed process
has begun.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from perdure import records as r
from perdure.data import state
from perdure.errors import VersionConflict
from perdure.journal import object_gc, run_erasure
from perdure.journal.leases import Lease
from perdure.journal.run_erasure import BEGINNING_BYTES, EraseEntries, EraseRun, IsHeld, RunErasurePlan, RunMoved
from perdure.kernel.protocol import Protocol, Read, Submit
from perdure.platform.process import identify_this_process
from perdure.run.answers import find_current_user
from perdure.run.lifecycle import ClaimedRun, load
from perdure.run.listing import summary_of, task_of
from perdure.store.base import Statement
from perdure.store.rows import RunRow, read_entry, read_run, require_run_row, run_in
from perdure.work.threads import conversations
from perdure.work.threads.conversations import ThreadIndex, is_shown, owner_of, read_index

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

_START_SEQ = 2
"""The entry of a turn with the user's message, and the id of its request."""

REASON = "its conversation was deleted"


class ErasedContent(msgspec.Struct):
    """What was erased, so that the files can be searched for it."""

    token: str
    """Identifies the scrub of the store's files that is due after the commits."""
    beginnings: list[bytes] = []
    has_objects: bool = False
    left: bool = False
    """Whether a run could not be erased: somebody has it open, or a fork needs it."""

    def add(self, planned: RunErasurePlan) -> None:
        self.beginnings += planned.beginnings
        self.has_objects = self.has_objects or planned.has_objects


def erase_dropped(engine: Engine, thread: str) -> Protocol[ErasedContent]:
    """Erase what a thread has dropped. Runs that are open or needed stay, and so does the note about the thread."""
    gone = ErasedContent(engine.store.clock.salt().hex())
    index: ThreadIndex = yield Read(read_index, (engine, thread))
    first = (yield Read(conversations.erasing, (engine,))).get(thread, index.first)
    for number in range(first, index.first):
        for run in (yield Read(lambda number=number: list(_runs_of(engine, index, number)))):
            yield from _erase_run(engine, run.stream, gone)
    beside = yield Read(_left_in_index, (engine, index, gone))
    if beside:
        note = engine.store.scrub_note(gone.token)
        yield Submit(EraseEntries([*beside, *note]))
    if not gone.left:
        unchanged = conversations.require_unchanged(engine, index)
        with suppress(VersionConflict):  # the thread has changed meanwhile: the next collection removes the note
            yield from state.commit(engine, [conversations.erasing_drop(engine, thread)], [unchanged])
    return gone


def erase_calls(engine: Engine, thread: str) -> Protocol[ErasedContent]:
    """Erase the runs `<thread>#<n>` in which an adapter has recorded the calls of a session."""
    gone = ErasedContent(engine.store.clock.salt().hex())
    for run in (yield Read(lambda: list(_call_runs(engine, thread)))):
        yield from _erase_run(engine, run.stream, gone)
    return gone


def scrub(engine: Engine, gone: ErasedContent) -> Protocol[None]:
    """Remove what was erased from the files of the store: large values, and the free space of its pages."""
    if gone.has_objects:
        yield Read(lambda: object_gc.collect(engine.store))
    if gone.beginnings:
        yield Read(lambda: engine.store.scrub(gone.beginnings, gone.token))


# -- runs -------------------------------------------------------------------------------------------------------------


def _runs_of(engine: Engine, index: ThreadIndex, number: int) -> Iterator[RunRow]:
    """Yield the runs of a dropped turn that no thread shows: its own, its children, and the tasks that did it.

    One task opened the turn. Another one queued its message, if the tasks of a thread were taken out of order.
    """
    owner = owner_of(engine, index, number)
    if is_shown(engine, owner, number):
        return
    run = read_run(engine.store, engine.name, f"{owner.thread}#{number}")
    if run is None:
        return
    if (starter := _task_of_turn(engine, owner.thread, run)) is not None:
        yield starter  # first: the turn tells which task it is
    yield from _family(engine, run)
    parent = run_in(engine.store.read("run_in", (run.parent,)))
    if parent is not None and _is_turn_task(engine, owner.thread, parent):
        yield parent


def _task_of_turn(engine: Engine, thread: str, turn: RunRow) -> RunRow | None:
    """Return the task by which `chat.start` has queued the message of a turn."""
    start = read_entry(engine.store, turn.stream, _START_SEQ)
    record = r.decode(start.kind, start.body) if start is not None and start.body is not None else None
    request = conversations.request_in(thread, getattr(record, "landed", ()))
    run = read_run(engine.store, engine.name, f"{thread}@{request}") if request else None
    return run if run is not None and _is_turn_task(engine, thread, run) else None


def _is_turn_task(engine: Engine, thread: str, run: RunRow) -> bool:
    return run.id.startswith(f"{thread}@") and task_of(engine.store, run.stream).startswith("turn ")


def _call_runs(engine: Engine, thread: str) -> Iterator[RunRow]:
    for name, agent, _ in engine.store.read("runs_with_prefix", (f"{thread}#", 1 << 60)):
        run = read_run(engine.store, engine.name, name) if agent == engine.name else None
        if run is not None and name[len(thread) + 1 :].replace(".", "").isdecimal():
            yield from _family(engine, run)


def _family(engine: Engine, run: RunRow) -> Iterator[RunRow]:
    """Yield a run and those that it has opened inside itself. Tasks that it has started go on."""
    for row in engine.store.read("children_of", (run.stream,)):
        child = RunRow(*row)
        if child.agent == engine.name and not task_of(engine.store, child.stream):
            yield from _family(engine, child)
    yield run


def _erase_run(engine: Engine, stream: int, gone: ErasedContent) -> Protocol[None]:
    """Erase one run, unless it was erased before, somebody has it open, or it is in doubt."""
    while True:
        [row] = yield Read(engine.store.read, ("run_in", (stream,)))
        run = RunRow(*row)
        if run.status == r.RunStatus.ERASED:
            return
        planned: RunErasurePlan | None = yield Read(_plan, (engine, run, gone.token))
        done = False
        if planned is not None:
            unit = EraseRun(engine.store, planned, engine.signer, _is_held(engine, stream))
            try:
                done = yield Submit(unit)
            except RunMoved:
                continue
            gone.add(planned)
        gone.left = gone.left or not done
        return


def _plan(engine: Engine, row: RunRow, token: str) -> RunErasurePlan | None:
    """Plan the erasure of a run; None if it is still needed."""
    store = engine.store
    run = summary_of(store, row)
    if run.holder or run.origin or store.read("forks_of", (run.stream,)):
        return None
    if not run.status.over:
        ledger, _ = load(engine, ClaimedRun(run.stream, 0, True))
        if run.status == r.RunStatus.WAITING or ledger.list_in_doubt():
            return None
    told = (REASON, find_current_user())
    planned = run_erasure.plan(store, row, lambda change: _is_transient(engine, change), engine.stream, told)
    if planned.compaction is not None and engine.signer is None:
        return None  # only the owner of the key compacts
    beside = run_erasure.entries_about(store, row, engine.stream, bool(task_of(store, run.stream)))
    note = engine.store.scrub_note(token)
    return msgspec.structs.replace(planned, statements=(*planned.statements, *beside, *note))


def _is_held(engine: Engine, stream: int) -> IsHeld:
    """Return the test for a process that has a run open. A lease of ours for a run not open here is left over."""
    lease_keeper = engine.place.lease_keeper_if_any

    def is_held(lease: Lease) -> bool:
        if lease.process == identify_this_process() and (
            lease_keeper is None or stream not in lease_keeper.open_streams
        ):
            return False
        return lease.is_alive()

    return is_held


# -- the index --------------------------------------------------------------------------------------------------------


def _is_transient(engine: Engine, change: r.AgentChange) -> bool:
    """Whether a change goes with its turn: an old version of something in the index of a thread."""
    if not isinstance(change, r.StateChange) or not conversations.is_of_threads(change):
        return False
    rows = engine.store.read("get_agent_state", (change.owner, change.space, change.key))
    return all(version != change.version for _, version, *_ in rows)


def _left_in_index(engine: Engine, index: ThreadIndex, gone: ErasedContent) -> list[Statement]:
    """Erase old values of the thread's state and queue that were written outside of its turns."""
    store, until = engine.store, _first_shown(engine, index)
    rows = store.read("state_history_in", (engine.stream, conversations.space_of(index.thread)))
    statements: list[Statement] = []
    for stream, seq in dict.fromkeys((stream, seq) for *_, stream, seq, at in rows if not until or at < until):
        for _, kind, _, body, *_ in store.read("journal_entry", (stream, seq)):
            record = r.decode(kind, body) if body is not None else None
            if isinstance(record, r.Landed) and all(_is_transient(engine, one) for one in record.landed):
                statements += run_erasure.erased_entry(stream, seq, body, record)
                gone.beginnings.append(body[:BEGINNING_BYTES])
    return statements


def _first_shown(engine: Engine, index: ThreadIndex) -> int:
    """Return when the first turn began that the thread shows; 0 if it shows none."""
    if index.turns < index.first:
        return 0
    return require_run_row(engine.store, engine.name, conversations.run_id_of(engine, index, index.first)).started_at
