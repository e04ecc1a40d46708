"""Erases everything that a run has recorded, because the conversation that it belongs to was deleted.

The bodies of its entries go. Their digests stay, so that the chain still verifies. What the run has written to its
agent outlasts it: those changes move to entries of their own at the end of the stream. So do the memories, which have
entries of their own already, and the cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from perdure import records as r
from perdure.errors import StoreBusy
from perdure.journal import chain
from perdure.journal.append import Append, Signer, StreamHead
from perdure.journal.compaction import carried_costs
from perdure.journal.leases import Lease, read_lease
from perdure.journal.objects import iterate_packed
from perdure.journal.stream_reader import compaction_in, pages
from perdure.platform.failpoints import Site
from perdure.store.base import Script, Statement, Store, UnitOfWork
from perdure.store.rows import RunRow

IsHeld = Callable[[Lease], bool]
"""Whether a process has the run of a lease open."""
IsTransient = Callable[[r.AgentChange], bool]
"""Whether a change of the agent goes with the run that has made it."""

_MEMORIES = (r.MemoryKept, r.MemorySeen, r.MemoryWithdrawn, r.MemoryForgotten)
_STAYING = (*_MEMORIES, r.RunErased, r.ChangesCarried)
BEGINNING_BYTES = 200
"""How much of an erased body identifies it in the free space of a file: it begins with random bytes."""


_FORGET_REPLAYS = (Statement("note_lost_snapshots"), Statement("clear_replay_snapshots"))
"""The cached results of event replays contain erased events."""


class RunMoved(StoreBusy):
    """The run has changed since its erasure was planned."""


class MovedChanges(msgspec.Struct, frozen=True):
    """The changes of the agent that outlast an entry."""

    seq: int
    at: int
    landed: tuple[tuple[int, r.AgentChange], ...]
    """Each with its place in that entry."""


class RunErasurePlan(msgspec.Struct, frozen=True):
    """What erasing a run changes."""

    stream: int
    last: int
    """The last entry that the plan knows."""
    erased: r.RunErased
    statements: tuple[Statement, ...]
    moved: tuple[MovedChanges, ...]
    compaction: r.StreamCompacted | None
    """For a compacted run: the compaction without the state that it carried."""
    beginnings: tuple[bytes, ...]
    has_objects: bool


def plan(store: Store, run: RunRow, is_transient: IsTransient, owner: int, told: tuple[str, str]) -> RunErasurePlan:
    """Plan the erasure of a run by its row in the view. `told` has the reason, and who wants it."""
    scan = _EntryScan(store, run.stream, owner, is_transient)
    usage, savings = carried_costs(store, run.agent, run.id)
    compaction = compaction_in(store.read("last_compaction", (run.stream,)))
    return RunErasurePlan(
        run.stream,
        scan.last,
        r.RunErased(run.agent, run.id, run.parent, run.started_at, *told, usage, savings),
        tuple(scan.statements),
        tuple(scan.moved),
        msgspec.structs.replace(compaction, state=(), usage=(), savings=()) if compaction is not None else None,
        tuple(scan.beginnings),
        scan.has_objects,
    )


class _EntryScan:
    """Walks through the entries of a run and collects what is to be erased, and what outlasts it."""

    def __init__(self, store: Store, stream: int, owner: int, is_transient: IsTransient) -> None:
        self._stream, self._owner, self._is_transient = stream, owner, is_transient
        self.last = 0
        self.statements: list[Statement] = []
        self.moved: list[MovedChanges] = []
        self.beginnings: list[bytes] = []
        self.has_objects = False
        for page in pages(store, stream):
            for seq, kind, at, body, *_ in page:
                self.last = seq
                if body is not None:
                    self._take(seq, at, body, r.decode(kind, body))

    def _take(self, seq: int, at: int, body: bytes, record: r.Record) -> None:
        if isinstance(record, _STAYING):
            return
        self.statements += erased_entry(self._stream, seq, body, record, self._is_transient)
        self.beginnings.append(body[:BEGINNING_BYTES])
        self.has_objects = self.has_objects or any(True for _ in iterate_packed(record))
        landed: Sequence[r.AgentChange] = getattr(record, "landed", ())
        stays = tuple((place, one) for place, one in enumerate(landed) if not self._is_transient(one))
        if stays:
            self.moved.append(MovedChanges(seq, at, stays))
        if any(write.op == r.WriteOp.EVENT for write in _writes_of(record)):
            self.statements.append(Statement("drop_events_of_entry", (self._owner, at, self._stream, seq)))
            self.statements += _FORGET_REPLAYS


def erased_entry(
    stream: int, seq: int, body: bytes, record: r.Record, is_transient: IsTransient = lambda _: True
) -> Iterator[Statement]:
    """Erase an entry, and the history of the keys whose changes go with it."""
    yield Statement("erase_entry", (stream, seq, chain.body_digest(body)))
    for one in getattr(record, "landed", ()):
        if isinstance(one, r.StateChange) and is_transient(one):
            yield Statement("drop_state_history", (one.owner, one.space, one.key, one.revision))


def entries_about(store: Store, run: RunRow, owner: int, is_task: bool) -> Iterator[Statement]:
    """Erase what other streams hold about a run: its events, the answers and signals to it, and how it was queued."""
    stream, run_id = run.stream, run.id
    for about, at in store.read("answers_of", (stream,)):
        for where, seq, body in store.read("entries_of_kind", (r.EntryKind.ANSWERED, at, at)):
            record = r.decode(r.EntryKind.ANSWERED, body)
            if isinstance(record, r.Answered) and (record.stream, record.about) == (stream, about):
                yield from erased_entry(where, seq, body, record)
                yield Statement("drop_answer", (stream, about))
    for name, number, at in store.read("signals_of", (owner, run_id)):
        if alone := list(_erased_alone(store, at, at, r.SignalSent, (owner, run_id))):
            yield from [*alone, Statement("drop_signal", (owner, run_id, name, number))]
    for owner_of, at, where, seq in store.read("events_beside", (stream,)):
        for _, kind, _, body, *_ in store.read("journal_entry", (where, seq)):
            entry = r.decode(kind, body) if body is not None else None
            if isinstance(entry, r.Landed) and all(_is_event_of(stream, one) for one in entry.landed):
                yield from erased_entry(where, seq, body, entry)
                yield Statement("drop_events_of_entry", (owner_of, at, where, seq))
                yield from _FORGET_REPLAYS
    if is_task:
        yield from _erased_alone(store, 0, run.started_at, r.TaskQueued, (owner, run_id))


def _is_event_of(stream: int, change: r.AgentChange) -> bool:
    return isinstance(change, r.EventAppended) and change.run == stream


def _erased_alone(
    store: Store, since: int, until: int, kind: type[r.SignalSent | r.TaskQueued], which: tuple[int, str]
) -> Iterator[Statement]:
    """Erase the entries of a span of time that hold nothing but such changes of a run."""
    for where, seq, body in store.read("entries_of_kind", (r.EntryKind.LANDED, since, until)):
        landed = getattr(r.decode(r.EntryKind.LANDED, body), "landed", ())
        if landed and all(isinstance(one, kind) and (one.owner, one.run) == which for one in landed):
            yield Statement("erase_entry", (where, seq, chain.body_digest(body)))


def _writes_of(record: r.Record) -> Sequence[r.RunWrite]:
    return (record.write,) if isinstance(record, r.Wrote) else getattr(record, "writes", ())


class EraseEntries(UnitOfWork[None]):
    """Erases entries of other streams in one commit. Idempotent."""

    site = Site.ERASE
    erases = True

    def __init__(self, statements: Sequence[Statement]) -> None:
        self._statements = statements

    def script(self) -> Script[None]:
        yield self._statements


class EraseRun(UnitOfWork[bool]):
    """Erases a run in one commit, unless somebody has it open or a fork needs it. Returns whether it did."""

    site = Site.ERASE
    erases = long = True

    def __init__(self, store: Store, planned: RunErasurePlan, signer: Signer | None, is_held: IsHeld) -> None:
        self.lane = planned.stream
        self._store = store
        self._plan = planned
        self._signer = signer
        self._is_held = is_held
        self._append: Append | None = None

    def script(self) -> Script[bool]:
        planned, store = self._plan, self._store
        lease = yield from read_lease(planned.stream, store.clock.boot_ms(), store.one_host)
        if self._is_held(lease):
            return False
        take = Statement("take_lease", (planned.stream, lease.fence, None), RunMoved)
        look = [Statement("head_of", (planned.stream,)), Statement("forks_of", (planned.stream,))]
        [_, [(seq, link)], forks] = yield [take, *look]
        if seq != planned.last:
            raise RunMoved("the run has gone on since")
        if forks:
            return False
        head = StreamHead(store.identity, planned.stream, lease.fence + 1, seq, link)
        compacted = [planned.compaction] if planned.compaction is not None else []
        carried = [r.ChangesCarried(one.at, tuple(change for _, change in one.landed)) for one in planned.moved]
        first = [*_moves(planned, seq + len(compacted) + 2), *planned.statements]
        entries = [*compacted, planned.erased, *carried]
        clock, signer = store.clock, self._signer
        self._append = Append(self.site, head, entries, clock, objects=first, signer=signer, seal=True)
        yield from self._append.script()
        return True

    def settle(self, committed: bool) -> None:
        if self._append is not None:
            self._append.settle(committed)


def _moves(planned: RunErasurePlan, first: int) -> Iterator[Statement]:
    """Let the views find what outlasts the run in its new entries."""
    for seq, one in enumerate(planned.moved, first):
        for to_place, (place, change) in enumerate(one.landed):
            yield from _move(change, (planned.stream, one.seq, seq), one.at, (place, to_place))


def _move(change: r.AgentChange, where: tuple[int, int, int], at: int, places: tuple[int, int]) -> Iterator[Statement]:
    stream, before, seq = where
    if isinstance(change, r.StateChange):
        yield Statement("move_state_history", (change.owner, change.space, change.key, change.revision, seq))
    elif isinstance(change, r.CheckpointMade | r.ArtifactSaved):
        name = "move_checkpoint" if isinstance(change, r.CheckpointMade) else "move_artifact"
        yield Statement(name, (change.owner, change.name, change.version, *where))
    elif isinstance(change, r.EventAppended):
        old, new = (r.LANDED_PLACE + place for place in places)
        yield Statement("move_event", (change.owner, at, stream, before, old, seq, new))
    elif isinstance(change, r.ThreadPut | r.ThreadWrote):
        name = "move_thread_checkpoint" if isinstance(change, r.ThreadPut) else "move_thread_writes"
        yield Statement(name, (change.owner, change.thread, change.ns, change.id, *where))
