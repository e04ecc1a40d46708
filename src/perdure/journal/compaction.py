"""Compaction of a stream: unneeded entries are deleted, and one entry summarizes them.

Entries that something refers to stay under their numbers. The compaction entry has a mark of each kept entry, the
link of the last deleted one, and the data that views cannot get from elsewhere. It is signed, so that only the holder
of the key can compact signed entries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from perdure import records as r
from perdure.errors import JournalDamaged, StoreBusy
from perdure.journal import chain
from perdure.journal.append import Append, Signer, StreamHead
from perdure.journal.leases import lease_of
from perdure.journal.needed_entries import EntryNeeds, RemovableEvents
from perdure.journal.stream_reader import ChainWalk, compaction_in, pages
from perdure.platform.failpoints import Site
from perdure.records.compaction import CarriedSavings, CarriedUsage
from perdure.store.base import Row, Script, Statement, Store, UnitOfWork
from perdure.store.rows import EntryRow, first_number, require_run_row
from perdure.values.limits import COMPACT_ENTRIES_MAX

ROW_BYTES = 80
"""Estimated size of an entry without its body."""

_DONE = frozenset({int(r.EntryKind.STEP_DONE), int(r.EntryKind.EFFECT_DONE)})


class StreamCompactionPlan(msgspec.Struct, frozen=True):
    """The changes that compacting a stream makes."""

    stream: int
    fence: int
    """The stream's fencing token. If it changes, the stream was compacted or taken over: the plan is void."""
    first: int
    """The first entry that no archive has; `before` is the link before it."""
    before: bytes
    upto: int
    head: bytes
    kept: tuple[tuple[int, bytes], ...]
    """Numbers and marks of the entries that stay."""
    gone: int
    bytes: int
    record: r.StreamCompacted
    """The record to append; it still names the previous archive."""
    changes: tuple[Statement, ...]


class StreamMoved(StoreBusy):
    """The stream was compacted or taken over after the plan was made."""


def plan(
    store: Store, stream: int, horizon: int, *, whole: bool, noted: RemovableEvents | None = None
) -> StreamCompactionPlan | None:
    """Plan the compaction of a stream: all of a finished run (`whole`), else the entries before the horizon.

    Events stay, except those that `noted` lists as removable. Returns None if nothing would be gained. Raises
    JournalDamaged if the stream does not verify.
    """
    found, ends = store.read("last_compaction", (stream,)), store.read("head_of", (stream,))
    leases = store.read("read_lease", (stream, store.clock.boot_ms()))
    if not ends or not leases:
        return None
    looking = _StreamScan(store, stream, horizon, compaction_in(found), whole, noted)
    looking.look(first_number(ends))
    return looking.plan(lease_of(leases[0]).fence)


class _StreamScan:
    """Walks a stream and decides which entries stay."""

    def __init__(
        self,
        store: Store,
        stream: int,
        horizon: int,
        compaction: r.StreamCompacted | None,
        whole: bool,
        noted: RemovableEvents | None,
    ) -> None:
        self._store = store
        self._stream = stream
        self._horizon = horizon
        self._whole = whole
        self._compaction = compaction
        self._needs = EntryNeeds(store, horizon, stream, of_run=whole, noted=noted)
        self._along = ChainWalk(store.identity, stream, compaction)
        self.first = compaction.upto + 1 if compaction is not None else 1
        self.upto = self.first - 1
        self.before = self.head = compaction.head if compaction is not None else chain.genesis(store.identity, stream)
        self._kept: list[tuple[int, bytes]] = []
        self._gone = self._bytes = self._done = self._others = 0
        self._started: r.RunStarted | None = None

    def look(self, last: int) -> None:
        for page in pages(self._store, self._stream):
            for row in page:
                entry = EntryRow(*row)
                at_end = entry.seq > last or entry.seq >= self.first + COMPACT_ENTRIES_MAX
                if at_end or (not self._whole and entry.at >= self._horizon):
                    return
                self._take(row)

    def _take(self, row: Row) -> None:
        for what, seq, text in self._along.follow(row):
            raise JournalDamaged(f"stream {self._stream}, entry {seq} ({what}): {text}")
        seq, kind, at, body, stored, digest = row
        if seq >= self.first:
            self.upto, self.head = seq, stored
        record = r.decode(kind, body) if body is not None else r.remains(kind)
        if isinstance(record, r.RunStarted):
            self._started = record
        if record is not None and self._needs.is_needed(record, seq, at):
            covered = chain.body_digest(body) if body is not None else digest
            self._kept.append((seq, chain.mark(self._stream, seq, kind, at, covered, stored)))
            return
        self._gone += 1
        self._others += kind != r.EntryKind.STREAM_COMPACTED
        self._done += kind in _DONE
        self._bytes += ROW_BYTES + len(body or b"")

    def plan(self, fence: int) -> StreamCompactionPlan | None:
        record = self._record()
        added = ROW_BYTES + len(msgspec.msgpack.encode(record))
        if not self._others or self._bytes <= added:
            return None
        changes = (*self._needs.changes, Statement("drop_questions", (self._stream, self.upto)))
        place = (self._stream, fence, self.first, self.before, self.upto, self.head)
        return StreamCompactionPlan(*place, tuple(self._kept), self._gone, self._bytes - added, record, changes)

    def _record(self) -> r.StreamCompacted:
        old = self._compaction
        kept = b"".join(seq.to_bytes(4, "big") + mark for seq, mark in self._kept)
        archive, digest, done = (old.archive, old.digest, old.done) if old is not None else ("", b"", 0)
        floors = _highest((*(old.floors if old is not None else ()), *self._needs.floors))
        record = r.StreamCompacted(self.upto, self.head, kept, archive, digest, done=done + self._done, floors=floors)
        return (
            record if self._started is None else self._carry_view_data(record, self._started.agent, self._started.run)
        )

    def _carry_view_data(self, record: r.StreamCompacted, agent: str, run: str) -> r.StreamCompacted:
        """Add the view data of a run that its remaining entries no longer contain."""
        resumes = require_run_row(self._store, agent, run).resumes
        state = self._store.read("run_state_of", (self._stream,))
        usage, savings = carried_costs(self._store, agent, run)
        carried = tuple(r.CarriedState(key, value, version, at) for _, key, value, version, at in state)
        return msgspec.structs.replace(record, resumes=resumes, state=carried, usage=usage, savings=savings)


def carried_costs(store: Store, agent: str, run: str) -> tuple[tuple[CarriedUsage, ...], tuple[CarriedSavings, ...]]:
    """Return what a run has spent and saved, for an entry that carries it on."""
    spent, saved = store.read("usage_of", (agent, run)), store.read("savings_of", (agent, run))
    usage = (
        CarriedUsage(day, r.ModelUsage(model, provider, step, *counts))
        for _, _, step, model, provider, day, *counts in spent
    )
    savings = (
        CarriedSavings(day, r.SavedWork(steps, took_us, r.ModelUsage(model, provider, "", *counts)))
        for _, _, model, provider, day, steps, took_us, *counts in saved
    )
    return tuple(usage), tuple(savings)


def _highest(floors: Sequence[r.CompactionFloor]) -> tuple[r.CompactionFloor, ...]:
    """Merge the floors to one per namespace; earlier compactions are their only source."""
    found: dict[tuple[int, str], r.CompactionFloor] = {}
    for floor in floors:
        before = found.get((floor.owner, floor.space), floor)
        found[floor.owner, floor.space] = r.CompactionFloor(
            floor.owner, floor.space, max(before.revision, floor.revision), max(before.at, floor.at)
        )
    return tuple(found[space] for space in sorted(found))


class Compact(UnitOfWork[None]):
    """Append the compaction entry and delete the unneeded entries in one transaction."""

    site = Site.COMPACT
    long = True

    def __init__(self, store: Store, plan: StreamCompactionPlan, archive: str, digest: bytes, signer: Signer) -> None:
        self.lane = plan.stream
        self._store = store
        self._plan = plan
        self._signer = signer
        self._record = msgspec.structs.replace(plan.record, archive=archive, digest=digest)
        self._append: Append | None = None

    def script(self) -> Script[None]:
        plan = self._plan
        # A new fencing token makes a process that writes here continue in another stream.
        take = Statement("take_lease", (plan.stream, plan.fence, None), StreamMoved)
        look = [Statement("head_of", (plan.stream,)), Statement("forks_of", (plan.stream,))]
        [_, [(seq, link)], forks] = yield [take, *look]
        if forks:
            raise StreamMoved("a run was forked from this one just now")
        # The stream may have grown after the plan: entries that were unneeded then stay unneeded.
        head = StreamHead(self._store.identity, plan.stream, plan.fence + 1, seq, link)
        also = [*plan.changes, *_removals(plan), Statement("drop_seals", (plan.stream, plan.upto))]
        clock, signer = self._store.clock, self._signer
        self._append = Append(self.site, head, [self._record], clock, also=also, signer=signer, seal=True)
        yield from self._append.script()

    def settle(self, committed: bool) -> None:
        if self._append is not None:
            self._append.settle(committed)


def _removals(planned: StreamCompactionPlan) -> Iterator[Statement]:
    """Delete the ranges between the kept entries."""
    after = 0
    kept: Sequence[int] = [seq for seq, _ in planned.kept]
    for seq in (*kept, planned.upto + 1):
        if seq > after + 1:
            yield Statement("drop_journal_entries", (planned.stream, after + 1, seq - 1))
        after = seq
