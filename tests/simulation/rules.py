"""What must hold in every history, looked at while it happens and at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perdure import records as r
from perdure.errors import JournalDamaged
from perdure.journal.append import StreamHead, read_events
from perdure.store.base import Statement
from tests.simulation.database import Database, Transaction

if TYPE_CHECKING:
    from perdure.run.core import RunCore
    from tests.simulation.hosts import Process
    from tests.simulation.world import World

PERMITS = (r.EntryKind.EFFECT_INTENDED, r.EntryKind.EFFECT_AGAIN)


class Rules:
    """Collects violations; a sentence each."""

    def __init__(self, world: World, database: Database, allowance: int) -> None:
        self.violations: list[str] = []
        self.finished: set[int] = set()
        """Streams of finished runs."""
        self._world = world
        self._database = database
        self._allowance = allowance
        """By how many milliseconds the clocks of this history may disagree about one lease."""
        self._last: dict[int, int] = {}
        self._fences: dict[int, int] = {}
        self._taken: dict[tuple[int, int], int] = {}
        self._acknowledged: dict[tuple[int, int], bytes] = {}
        self._bodies: set[bytes] = set()
        self._keys: dict[tuple[int, int], str] = {}
        self._permits: dict[str, int] = {}
        self._starts: dict[str, int] = {}
        self._checked: dict[tuple[int, int], int] = {}

    def broken(self, sentence: str) -> None:
        """Something must not be."""
        self.violations.append(f"{self._world.now / 1000:.3f}: {sentence}")
        if self._world.lines is not None:
            self._world.note("RULES", sentence)

    @property
    def takeovers(self) -> int:
        """How often a run changed hands."""
        return sum(fence > 1 for _, fence in self._taken)

    # -- while it happens -----------------------------------------------------------------------------------------

    def note_executed(self, statement: Statement) -> None:
        """The server has executed a statement."""
        if statement.name == "check_lease":
            self._checked[statement.args] = self._world.now

    def note_committed(self, transaction: Transaction) -> None:
        """A transaction becomes durable at this moment."""
        for stream, lease in transaction.iterate_written("leases"):
            assert lease is not None
            if lease[0] < self._fences.get(stream, 0):
                self.broken(f"the fence of stream {stream} goes down to {lease[0]}")
            if lease[0] > self._fences.get(stream, 0):
                self._fences[stream] = lease[0]
                self._taken[stream, lease[0]] = self._world.now
        for (stream, seq), entry in sorted(transaction.iterate_written("journal")):
            assert entry is not None
            self._entry(stream, seq, entry)

    def _entry(self, stream: int, seq: int, entry: tuple[Any, ...]) -> None:
        kind, _, body, _, fence = entry
        if seq != self._last.get(stream, 0) + 1:
            self.broken(f"entry {seq} of stream {stream} follows {self._last.get(stream, 0)}")
        self._last[stream] = seq
        if fence < self._fences[stream]:
            self.broken(f"entry {seq} of stream {stream} has fence {fence} after {self._fences[stream]} was claimed")
        if body in self._bodies:
            self.broken(f"entry {seq} of stream {stream} is in the journal twice")
        self._bodies.add(body)
        if kind in PERMITS:
            self._permit(stream, seq, r.decode(kind, body))
        elif kind == r.EntryKind.RUN_FINISHED:
            if stream in self.finished:
                self.broken(f"stream {stream} finishes twice")
            self.finished.add(stream)

    def _permit(self, stream: int, seq: int, entry: r.Record) -> None:
        if isinstance(entry, r.EffectIntended):
            self._keys[stream, seq] = entry.key
            key = entry.key
        else:
            assert isinstance(entry, r.EffectAgain)
            key = self._keys[stream, entry.intent]
        self._permits[key] = self._permits.get(key, 0) + 1

    def note_acknowledged(self, head: StreamHead | None) -> None:
        """A process has been told that its stream goes as far as this."""
        if head is not None:
            self._acknowledged[head.stream, head.seq] = head.chain

    def body_starts(self, process: Process, run: RunCore, key: str, *, confirmed: bool) -> None:
        """A process begins to do what an effect does; `confirmed`: it has just asked the server whether it may."""
        stream, fence, now = run.head.stream, run.head.fence, self._world.now
        self._starts[key] = self._starts.get(key, 0) + 1
        if self._starts[key] > self._permits.get(key, 0):
            self.broken(f"{process.name} does {key} for time {self._starts[key]} without a permit in the journal")
        if process.lease_keeper.has_expired():
            self.broken(f"{process.name} does {key} although its own clock says that its lease has run out")
        taken = self._taken.get((stream, fence + 1))
        looked = self._checked[stream, fence] if confirmed else now
        if taken is not None and taken < looked - (0 if confirmed else self._allowance):
            self.broken(f"{process.name} does {key} {looked - taken} ms after another had taken the run over")

    # -- at the end -------------------------------------------------------------------------------------------------

    def conclude(self, programs: int) -> None:
        """The journal is whole, holds everything that was acknowledged, and every run is finished."""
        streams: dict[int, list[tuple[Any, ...]]] = {}
        for (stream, seq), row in sorted(self._database.tables["journal"].items()):
            if row.value is not None:
                kind, at, body, chain, fence = row.value
                streams.setdefault(stream, []).append((seq, kind, at, body, chain, None, fence))
        for stream, rows in streams.items():
            self._check_whole(stream, rows)
        for (stream, seq), chain in self._acknowledged.items():
            entry = self._database.read_committed("journal", (stream, seq))
            if entry is None or entry[3] != chain:
                self.broken(f"entry {seq} of stream {stream} was acknowledged, and is not in the journal")
        if len(self.finished) != programs:
            self.broken(f"only {len(self.finished)} of {programs} runs have finished")

    def _check_whole(self, stream: int, rows: list[tuple[Any, ...]]) -> None:
        try:
            read_events("simulated", stream, [row[:6] for row in rows])
        except JournalDamaged as error:
            self.broken(str(error))
        fences = [row[6] for row in rows]
        if fences != sorted(fences):
            self.broken(f"the fences of stream {stream} go down: {fences}")
