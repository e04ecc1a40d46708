"""Writes to an agent that are decided inside the commit: the version of a key, the result of `incr`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from perdure import records
from perdure.errors import VersionConflict
from perdure.journal import objects
from perdure.journal.append import Append, Signer, StreamHead
from perdure.journal.artifact_writes import SaveArtifact, decide_puts
from perdure.journal.checkpoint_writes import SaveCheckpoint, decide_checkpoints
from perdure.journal.departures import lock_not_departed
from perdure.journal.documents import IndexedDocument, documents_dropped, documents_of, state_place
from perdure.journal.memory_writes import Retraction, SaveMemory, decide_memories
from perdure.journal.run_signals import SendSignal, number_signals
from perdure.journal.task_starts import QueueRun, RequeueRun, decide_starts
from perdure.journal.workflow_writes import ChangeStepStatus, SaveWorkflow, decide_moves
from perdure.platform.failpoints import Site
from perdure.store.base import Script, Statement, Store, decide
from perdure.store.rows import first_number

StateKey = tuple[int, str, str]
"""Owner, namespace and key."""
NamespaceKey = tuple[int, str]
"""Owner and namespace."""
WriteT = TypeVar("WriteT", bound=msgspec.Struct)


class SetKey(msgspec.Struct, frozen=True):
    """A requested change of one state key."""

    place: StateKey
    packed: bytes = b""
    """The new value; empty deletes the key."""
    objects: Sequence[Statement] = ()
    make: Callable[[Any], Any] | None = None
    """Instead of `packed`: maps the current value, or None, to the new one. Called inside the commit."""
    expires: int = 0
    keeps: bool = False
    """Keep the current `expires` and `lasts` of the key."""
    called: int = 0
    """When the caller asked: a value set earlier in the same commit may have expired by then."""
    if_version: int | None = None
    """Refuse unless the key has this version; 0 means that the key does not exist."""
    writes: bool = True
    """False if the transaction only depends on the version that it read."""
    sweeps: bool = False
    """Delete the key only if it has expired and nobody has set it again."""
    lasts: int = 0
    """Sliding expiry: milliseconds that the key stays visible after the last read."""
    touches: int = 0
    """If the key still has this version, update its `expires` or documents and leave the value alone."""
    documents: Sequence[IndexedDocument] | None = None
    """The search documents of the new value. None means no documents; with `touches`, the current ones stay."""

    @property
    def path(self) -> str:
        """The key as error messages show it."""
        _, space, key = self.place
        return f"state[{space!r}][{key!r}]"


class UnconditionalWrite(msgspec.Struct, frozen=True):
    """A change that needs no decision inside the commit."""

    landing: records.AgentChange
    objects: Sequence[Statement] = ()


class RequireRevision(msgspec.Struct, frozen=True):
    """Refuse the commit if a namespace has changed since the caller read it at this revision."""

    space: NamespaceKey
    revision: int


class RequireAtHome(msgspec.Struct, frozen=True):
    """Refuse the commit if an agent, written to from a run of another agent, has left the store."""

    owner: int


AgentWrite = (
    SetKey
    | RequireRevision
    | RequireAtHome
    | SaveCheckpoint
    | SaveArtifact
    | SendSignal
    | SaveWorkflow
    | ChangeStepStatus
    | QueueRun
    | RequeueRun
    | UnconditionalWrite
    | SaveMemory
    | Retraction
)
"""A requested write to an agent."""


class StoredKey(msgspec.Struct, frozen=True):
    """A state key as stored."""

    value: bytes = b""
    version: int = 0
    expires: int = 0
    at: int = 0
    created: int = 0
    lasts: int = 0
    indexed: bool = False
    """Whether it has search documents."""
    touched: bool = False
    """Whether only its expiry or documents changed."""

    def as_seen_at(self, now: int) -> StoredKey:
        """The key as readers see it: a deleted or expired key looks absent."""
        return self if self.value and (not self.expires or self.expires > now) else _NOTHING


_NOTHING = StoredKey()


class AppendAgentWrites(Append):
    """Append entries whose first one carries agent writes, decided inside the transaction.

    Each memory is an entry of its own, after the first.
    """

    __slots__ = ("_asks", "_entries", "_made", "_store", "landed")

    def __init__(
        self,
        site: Site,
        head: StreamHead,
        entries: Sequence[records.Record],
        store: Store,
        asks: Sequence[AgentWrite],
        *,
        objects: Sequence[Statement] = (),
        also: Sequence[Statement] = (),
        signer: Signer | None = None,
        seal: bool = False,
    ) -> None:
        super().__init__(site, head, (), store.clock, also=also, signer=signer, seal=seal)
        self._entries = entries
        self._made = objects
        self._store = store
        self._asks = asks
        self.landed: tuple[records.AgentChange, ...] = ()

    def recall(self, landed: Sequence[records.AgentChange]) -> None:
        """Take over what an earlier unit like this one has committed, instead of committing it."""
        self.landed = tuple(landed)

    def script(self) -> Script[int]:
        """Decide the writes and append the entries; append nothing if nothing changed."""
        asks = [ask for ask in self._asks if isinstance(ask, SetKey)]
        # The first requirement per namespace wins: it has the oldest read.
        unchanged = {
            write.space: write.revision for write in reversed(self._asks) if isinstance(write, RequireRevision)
        }
        resolving = _WriteResolver(self._store, asks, unchanged)
        changes = yield from resolving.run()
        landed, made = list[records.AgentChange](changes), [*self._made, *resolving.objects]
        others = [ask for ask in self._asks if not isinstance(ask, SetKey | RequireRevision)]
        for kinds, decided in _DECIDERS if others else ():
            if wanted := [ask for ask in others if isinstance(ask, kinds)]:
                more, also = yield from decided(wanted, self._store)
                landed += more
                made += also
        self.landed = tuple(landed)
        first, *rest = self._entries
        memories: list[records.Record] = []
        if about := [ask for ask in self._asks if isinstance(ask, SaveMemory | Retraction)]:
            memories, also = yield from decide_memories(about, self._store, first)
            made += also
        says = landed or not isinstance(first, records.Landed)
        entries = [msgspec.structs.replace(first, landed=self.landed)] if says else []
        if not entries and not memories:
            return self.head.seq
        self.set_records([*entries, *memories, *rest])
        self.objects = made
        return (yield from super().script())


def _decide_usage(
    visits: Sequence[RequireAtHome], _: Store
) -> Script[tuple[list[records.AgentChange], list[Statement]]]:
    for owner in sorted({visit.owner for visit in visits}):
        yield from lock_not_departed(owner)
    return [], []


def _pass_through(
    settled: Sequence[UnconditionalWrite], _: Store
) -> Script[tuple[list[records.AgentChange], list[Statement]]]:
    yield from ()
    return [decided.landing for decided in settled], [put for decided in settled for put in decided.objects]


WriteDecider = Callable[[Sequence[Any], Store], Script[tuple[list[records.AgentChange], list[Statement]]]]
"""Decides writes of one kind under their locks; returns the changes and the statements that go with them."""

_DECIDERS: tuple[tuple[tuple[type, ...], WriteDecider], ...] = (
    ((RequireAtHome,), _decide_usage),
    ((SaveCheckpoint,), decide_checkpoints),
    ((SaveArtifact,), decide_puts),
    ((SaveWorkflow, ChangeStepStatus), decide_moves),
    ((SendSignal,), number_signals),
    ((QueueRun, RequeueRun), decide_starts),
    ((UnconditionalWrite,), _pass_through),
)
"""Run after the state keys, always in this order: a fixed lock order prevents deadlocks."""


class _WriteResolver:
    """Turns requested key changes into decided ones."""

    def __init__(self, store: Store, asks: Sequence[SetKey], revisions: Mapping[NamespaceKey, int]) -> None:
        self._store = store
        self._asks = asks
        self._wanted = revisions
        self._now = store.clock.wall_ms()
        self.objects: list[Statement] = []
        self._written: dict[StateKey, Sequence[Statement]] = {}
        self._documents: dict[StateKey, Sequence[IndexedDocument] | None] = {}

    def run(self) -> Script[tuple[records.StateChange, ...]]:
        """Return one change per key, in the order in which the keys were first named."""
        if not self._asks and not self._wanted:
            return ()
        # Sorted: a fixed lock order prevents deadlocks.
        spaces = sorted({ask.place[:2] for ask in self._asks} | set(self._wanted))
        places = list(dict.fromkeys(ask.place for ask in self._asks))
        rows = yield [
            *(Statement("lock_namespace", space) for space in spaces),
            *(Statement("get_namespace_revision", space) for space in spaces),
            *(Statement("get_agent_state", place) for place in places),
        ]
        revisions = {space: _read_first(found) for space, found in zip(spaces, rows[len(spaces) :], strict=False)}
        before = {
            place: _entry(*found[0]) if found else _NOTHING
            for place, found in zip(places, rows[2 * len(spaces) :], strict=True)
        }
        for space, wanted in self._wanted.items():
            if revisions[space] != wanted:
                raise VersionConflict(f"namespace {space[1]!r} has changed", expected=wanted, found=revisions[space])
        after = dict(before)
        for ask in self._asks:
            after[ask.place] = yield from self._apply(ask, before[ask.place], after[ask.place])
        return self._changes(before, after, revisions)

    def _apply(self, ask: SetKey, stored: StoredKey, entry: StoredKey) -> Script[StoredKey]:
        found = stored.as_seen_at(self._now)
        if ask.touches:
            return self._touch(ask, stored, entry)
        fresh = entry is not stored and not entry.touched
        if fresh:  # changed earlier in this commit: both changes become one version
            found = StoredKey(entry.value, stored.version + 1 if entry.value else 0)
        if ask.if_version is not None and ask.if_version != found.version:
            yield from self._refuse(ask, found)
        if not ask.writes or (ask.sweeps and (entry is not stored or found.value)):
            return entry
        packed, made, there = ask.packed, ask.objects, entry.as_seen_at(ask.called if fresh else self._now)
        if ask.make is not None:
            value = yield from self._value(ask.place, there)
            packed, made = objects.pack(self._store, decide(ask.make, value), ask.path)
        self.objects += made
        self._written[ask.place] = made
        self._documents[ask.place] = ask.documents
        timed = there if ask.keeps else ask
        return StoredKey(packed, entry.version, timed.expires, lasts=timed.lasts)

    def _touch(self, ask: SetKey, stored: StoredKey, entry: StoredKey) -> StoredKey:
        """Extend the expiry unless the value changed or went since it was read; the latest expiry wins."""
        changed = entry is not stored and not entry.touched
        if changed or ask.touches != stored.as_seen_at(self._now).version:
            return entry
        if ask.documents is not None:
            self._documents[ask.place] = ask.documents
        return msgspec.structs.replace(entry, expires=max(entry.expires, ask.expires), touched=True)

    def _value(self, place: StateKey, entry: StoredKey) -> Script[Any]:
        if not entry.value:
            return None
        if made := self._written.get(place):  # written earlier in this commit: not in the store yet
            return objects.decode_packed(entry.value, made)
        return (yield from objects.unpack_within(self._store, entry.value))

    def _refuse(self, ask: SetKey, found: StoredKey) -> Script[None]:
        theirs = yield from self._value(ask.place, found)
        inline = ask.packed if ask.writes and ask.make is None else b""
        raise VersionConflict(
            f"{ask.path} has version {found.version}, not {ask.if_version}",
            expected=ask.if_version or 0,
            found=found.version,
            yours=objects.decode_packed(ask.packed, ask.objects) if inline else None,
            theirs=theirs,
        )

    def _changes(
        self,
        before: Mapping[StateKey, StoredKey],
        after: Mapping[StateKey, StoredKey],
        revisions: dict[NamespaceKey, int],
    ) -> tuple[records.StateChange, ...]:
        changes = []
        for place, entry in after.items():
            old = before[place]
            if entry is old or not (entry.value or old.value):
                continue  # not written, or deleted although absent
            changes.append(self._change(place, old, entry, revisions))
        return tuple(changes)

    def _change(
        self, place: StateKey, old: StoredKey, entry: StoredKey, revisions: dict[NamespaceKey, int]
    ) -> records.StateChange:
        owner, space, key = place
        revision = revisions[owner, space] = revisions[owner, space] + 1
        version = old.version if entry.touched else old.version + 1
        self._index(place, version, old, entry)
        there = old.as_seen_at(self._now)
        created = (old.created if entry.touched else there.created or there.at) if entry.value else 0
        seen = (entry.expires, created, entry.lasts, old.at if entry.touched else 0)
        return records.StateChange(owner, space, key, version, revision, entry.value, *seen)

    def _index(self, place: StateKey, version: int, old: StoredKey, entry: StoredKey) -> None:
        """Replace the search documents in the commit of the value, so that no search finds the old value."""
        documents = self._documents.get(place)
        if entry.touched and documents is None:
            return
        if old.indexed:
            self.objects += documents_dropped(state_place(place))
        self.objects += documents_of(state_place(place), version, documents or ())


def resolve_writes(
    store: Store, asks: Sequence[SetKey], unchanged: RequireRevision
) -> Script[tuple[tuple[records.StateChange, ...], Sequence[Statement]]]:
    """Decide changes of keys for an entry that others append; returns them, and the objects that go with them."""
    resolving = _WriteResolver(store, asks, {unchanged.space: unchanged.revision})
    changes = yield from resolving.run()
    return changes, resolving.objects


def read_changes_at(store: Store, stream: int, seq: int, kind: type[WriteT]) -> list[WriteT]:
    """Read a journal entry and return its agent changes of one kind."""
    [(_, code, _, body, _, _)] = store.read("journal_entry", (stream, seq))
    return decode_changes(code, body, kind)


def decode_changes(code: int, body: bytes, kind: type[WriteT]) -> list[WriteT]:
    """Return the agent changes of one kind in the body of a journal entry."""
    return [landing for landing in getattr(records.decode(code, body), "landed", ()) if isinstance(landing, kind)]


def _entry(
    value: bytes, version: int, _: int, at: int, expires: int, created: int, lasts: int, indexed: int
) -> StoredKey:
    return StoredKey(value, version, expires, at, created, lasts, bool(indexed))


def _read_first(rows: Sequence[tuple[Any, ...]]) -> int:
    return first_number(rows)
