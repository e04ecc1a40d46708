"""Folding a stream: entries that nobody needs any more go, and one entry says what they came to.

Entries that something still refers to stay where they are, so that nothing that points to them has to change; the entry
that tells of the folding has a mark of each, the link of the last one that went, and what the views cannot get from
elsewhere. It is signed: an entry that was signed is folded only by who has the key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from .. import records as r
from ..errors import JournalDamaged, StoreBusy
from ..failpoints import Site
from ..limits import FOLD_ENTRIES_MAX
from ..store.base import Row, Script, Statement, Store, Unit
from . import chain
from .append import Append, Head, Signer
from .needs import Needs, Noted
from .walk import Chain, folded_in, pages

ROW_BYTES = 80
"""What an entry takes beside its body."""

_DONE = frozenset({int(r.Kind.STEP_DONE), int(r.Kind.EFFECT_DONE)})


class Plan(msgspec.Struct, frozen=True):
    """What folding a stream would do now."""

    stream: int
    fence: int
    """Of the stream: if it has another by then, somebody else has folded it, and the plan is void."""
    first: int
    """The first entry that no archive has, and the link before it."""
    before: bytes
    upto: int
    head: bytes
    kept: tuple[tuple[int, bytes], ...]
    """Entries that stay, with their marks."""
    gone: int
    bytes: int
    record: r.Folded
    """What will be appended; of the archive it has only what was known before."""
    changes: tuple[Statement, ...]


class Moved(StoreBusy):
    """The stream was folded, or taken over, since the plan was made."""


def plan(store: Store, stream: int, horizon: int, *, whole: bool, noted: Noted | None = None) -> Plan | None:
    """How a stream can be folded: a finished run as a `whole`, others as far as they are older than the horizon.

    Events stay, unless it is said which of the `noted` ones may go. None when nothing would be gained. Raises
    JournalDamaged, and says where, rather than fold what does not verify.
    """
    found, ends = store.read("last_folded", (stream,)), store.read("head_of", (stream,))
    leases = store.read("read_lease", (stream, store.clock.boot_ms()))
    if not ends or not leases:
        return None
    looking = _Looking(store, stream, horizon, folded_in(found), whole, noted)
    looking.look(int(ends[0][0]))
    return looking.plan(int(leases[0][0]))


class _Looking:
    """Goes along a stream, and sorts its entries."""

    def __init__(
        self, store: Store, stream: int, horizon: int, folded: r.Folded | None, whole: bool, noted: Noted | None
    ) -> None:
        self._store = store
        self._stream = stream
        self._horizon = horizon
        self._whole = whole
        self._folded = folded
        self._needs = Needs(store, horizon, stream, of_run=whole, noted=noted)
        self._along = Chain(store.identity, stream, folded)
        self.first = folded.upto + 1 if folded is not None else 1
        self.upto = self.first - 1
        self.before = self.head = folded.head if folded is not None else chain.genesis(store.identity, stream)
        self._kept: list[tuple[int, bytes]] = []
        self._gone = self._bytes = self._done = self._others = 0
        self._started: r.RunStarted | None = None

    def look(self, last: int) -> None:
        for page in pages(self._store, self._stream):
            for row in page:
                at_end = row[0] > last or row[0] >= self.first + FOLD_ENTRIES_MAX
                if at_end or (not self._whole and row[2] >= self._horizon):
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
        if record is not None and self._needs.keeps(record, seq, at):
            covered = chain.body_digest(body) if body is not None else digest
            self._kept.append((seq, chain.mark(self._stream, seq, kind, at, covered, stored)))
            return
        self._gone += 1
        self._others += kind != r.Kind.FOLDED
        self._done += kind in _DONE
        self._bytes += ROW_BYTES + len(body or b"")

    def plan(self, fence: int) -> Plan | None:
        record = self._record()
        added = ROW_BYTES + len(msgspec.msgpack.encode(record))
        if not self._others or self._bytes <= added:
            return None
        changes = (*self._needs.changes, Statement("drop_questions", (self._stream, self.upto)))
        place = (self._stream, fence, self.first, self.before, self.upto, self.head)
        return Plan(*place, tuple(self._kept), self._gone, self._bytes - added, record, changes)

    def _record(self) -> r.Folded:
        old = self._folded
        kept = b"".join(seq.to_bytes(4, "big") + mark for seq, mark in self._kept)
        archive, digest, done = (old.archive, old.digest, old.done) if old is not None else ("", b"", 0)
        floors = _highest((*(old.floors if old is not None else ()), *self._needs.floors))
        record = r.Folded(self.upto, self.head, kept, archive, digest, done=done + self._done, floors=floors)
        return record if self._started is None else self._carrying(record, self._started.agent, self._started.run)

    def _carrying(self, record: r.Folded, agent: str, run: str) -> r.Folded:
        """What the views have of a run, and its entries will not tell any more."""
        [row] = self._store.read("get_run", (agent, run))
        state = self._store.read("state_of", (self._stream,))
        spent, saved = self._store.read("usage_of", (agent, run)), self._store.read("savings_of", (agent, run))
        return msgspec.structs.replace(
            record,
            resumes=row[8],
            state=tuple(r.Carried(key, value, version, at) for _, key, value, version, at in state),
            usage=tuple(
                r.CarriedUsage(day, r.Usage(model, provider, step, *counts))
                for _, _, step, model, provider, day, *counts in spent
            ),
            savings=tuple(
                r.CarriedSavings(day, r.Saved(steps, took_us, r.Usage(model, provider, "", *counts)))
                for _, _, model, provider, day, steps, took_us, *counts in saved
            ),
        )


def _highest(floors: Sequence[r.Floor]) -> tuple[r.Floor, ...]:
    """One for each namespace: those of what was folded before are not told by anybody else."""
    found: dict[tuple[int, str], r.Floor] = {}
    for it in floors:
        before = found.get((it.owner, it.space), it)
        found[it.owner, it.space] = r.Floor(
            it.owner, it.space, max(before.revision, it.revision), max(before.at, it.at)
        )
    return tuple(found[space] for space in sorted(found))


class Fold(Unit[None]):
    """Append the entry that tells of it, and remove what goes, in one transaction."""

    site = Site.FOLD
    long = True

    def __init__(self, store: Store, plan: Plan, archive: str, digest: bytes, signer: Signer) -> None:
        self.lane = plan.stream
        self._store = store
        self._plan = plan
        self._signer = signer
        self._record = msgspec.structs.replace(plan.record, archive=archive, digest=digest)
        self._append: Append | None = None

    def script(self) -> Script[None]:
        it = self._plan
        # The next fence: a process that writes here goes on in another stream.
        take = Statement("take_lease", (it.stream, it.fence, None), Moved)
        look = [Statement("head_of", (it.stream,)), Statement("forks_of", (it.stream,))]
        [_, [(seq, link)], forks] = yield [take, *look]
        if forks:
            raise Moved("a run was forked from this one just now")
        # It may have grown since the plan was made: what is not needed up to there is not needed any more.
        head = Head(self._store.identity, it.stream, it.fence + 1, seq, link)
        also = [*it.changes, *_removals(it), Statement("drop_seals", (it.stream, it.upto))]
        clock, signer = self._store.clock, self._signer
        self._append = Append(self.site, head, [self._record], clock, also=also, signer=signer, seal=True)
        yield from self._append.script()

    def settle(self, committed: bool) -> None:
        if self._append is not None:
            self._append.settle(committed)


def _removals(it: Plan) -> Iterator[Statement]:
    """What lies between the entries that stay."""
    after = 0
    kept: Sequence[int] = [seq for seq, _ in it.kept]
    for seq in (*kept, it.upto + 1):
        if seq > after + 1:
            yield Statement("drop_events", (it.stream, after + 1, seq - 1))
        after = seq
