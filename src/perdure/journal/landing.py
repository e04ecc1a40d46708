"""Writes to an agent that are decided inside the commit: which version a key gets, and what `incr` makes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from .. import objects, records
from ..errors import VersionConflict
from ..failpoints import Site
from ..store.base import Script, Statement, Store, decide
from .append import Append, Head, Signer
from .departures import held_at_home
from .documents import Document, documents_dropped, documents_of, state_place
from .marks import Mark, decided_marks
from .memories import Keep, Told, decided_memories
from .plans import Draft, Move, decided_moves
from .puts import Put, decided_puts
from .signals import Signal, numbered
from .starts import Again, Start, decided_starts

Place = tuple[int, str, str]
"""Owner, namespace and key."""
Space = tuple[int, str]
"""Owner and namespace."""
Part = TypeVar("Part", bound=msgspec.Struct)


class Ask(msgspec.Struct, frozen=True):
    """A wanted change of one key; `make` says what becomes of the value that is there."""

    place: Place
    packed: bytes = b""
    """The new value; none deletes the key."""
    objects: Sequence[Statement] = ()
    make: Callable[[Any], Any] | None = None
    """Instead of `packed`: from the value that is there, or None, to the new one. Called inside the commit."""
    expires: int = 0
    keeps: bool = False
    """Instead of `expires` and `lasts`: leaves to the key the time that it has."""
    called: int = 0
    """When somebody asked: what an earlier ask of the same commit has set may have had no time left then."""
    if_version: int | None = None
    """Refused unless the key has this version; 0 is a key that is not there."""
    writes: bool = True
    """False where a transaction only relies on what it has read."""
    sweeps: bool = False
    """Deletes the key only if its time has run out, and stays out of the way of whoever has set it again."""
    lasts: int = 0
    """Milliseconds for which it is to be seen after somebody has last read it."""
    touches: int = 0
    """Leaves the value as it is, if it still has this version, and gives it another `expires` or other documents."""
    documents: Sequence[Document] | None = None
    """What the new value can be found by; None is nothing, and for what only touches: what it is found by now."""

    @property
    def path(self) -> str:
        """As it is written in a message."""
        _, space, key = self.place
        return f"state[{space!r}][{key!r}]"


class Settled(msgspec.Struct, frozen=True):
    """Something that lands as it is: nothing about it is decided inside the commit."""

    landing: records.Landing
    objects: Sequence[Statement] = ()


class Unchanged(msgspec.Struct, frozen=True):
    """A namespace that must still be at a revision when the rest lands: its asks were made by what was read of it."""

    space: Space
    revision: int


class Visit(msgspec.Struct, frozen=True):
    """Something is written to an agent in a run of another one: it must be at home when that lands."""

    owner: int


Wanted = Ask | Unchanged | Visit | Mark | Put | Signal | Draft | Move | Start | Again | Settled | Keep | Told
"""What is to be written to an agent."""


class Entry(msgspec.Struct, frozen=True):
    """A key as the store has it."""

    value: bytes = b""
    version: int = 0
    expires: int = 0
    at: int = 0
    created: int = 0
    lasts: int = 0
    indexed: bool = False
    """Whether it can be searched for."""
    touched: bool = False
    """Whether only its time was moved."""

    def seen(self, now: int) -> Entry:
        """What a reader sees of it: nothing of one that was deleted or is out of date."""
        return self if self.value and (not self.expires or self.expires > now) else _NOTHING


_NOTHING = Entry()


class Land(Append):
    """Entries, the first of which carries what is written to agents, decided inside the transaction.

    Memories are entries of their own, behind the first.
    """

    __slots__ = ("_asks", "_entries", "_made", "_store", "landed")

    def __init__(
        self,
        site: Site,
        head: Head,
        entries: Sequence[records.Record],
        store: Store,
        asks: Sequence[Wanted],
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
        self.landed: tuple[records.Landing, ...] = ()

    def script(self) -> Script[int]:
        """As `Append.script`; without any change, an entry that would say nothing else is not made."""
        asks = [ask for ask in self._asks if isinstance(ask, Ask)]
        # Of several, the first: what it was made by is the oldest.
        unchanged = {it.space: it.revision for it in reversed(self._asks) if isinstance(it, Unchanged)}
        resolving = _Resolving(self._store, asks, unchanged)
        changes = yield from resolving.run()
        landed, made = list[records.Landing](changes), [*self._made, *resolving.objects]
        others = [ask for ask in self._asks if not isinstance(ask, Ask | Unchanged)]
        for kinds, decided in _DECIDERS if others else ():
            if wanted := [ask for ask in others if isinstance(ask, kinds)]:
                more, also = yield from decided(wanted, self._store)
                landed += more
                made += also
        self.landed = tuple(landed)
        first, *rest = self._entries
        memories: list[records.Record] = []
        if about := [ask for ask in self._asks if isinstance(ask, Keep | Told)]:
            memories, also = yield from decided_memories(about, self._store, first)
            made += also
        says = landed or not isinstance(first, records.Landed)
        entries = [msgspec.structs.replace(first, landed=self.landed)] if says else []
        if not entries and not memories:
            return self.head.seq
        self.bring([*entries, *memories, *rest])
        self.objects = made
        return (yield from super().script())


def _at_home(visits: Sequence[Visit], _: Store) -> Script[tuple[list[records.Landing], list[Statement]]]:
    for owner in sorted({it.owner for it in visits}):
        yield from held_at_home(owner)
    return [], []


def _as_they_are(settled: Sequence[Settled], _: Store) -> Script[tuple[list[records.Landing], list[Statement]]]:
    yield from ()
    return [it.landing for it in settled], [put for it in settled for put in it.objects]


Decide = Callable[[Sequence[Any], Store], Script[tuple[list[records.Landing], list[Statement]]]]
"""What some asks come to, decided under their locks; and what must be written with it."""

_DECIDERS: tuple[tuple[tuple[type, ...], Decide], ...] = (
    ((Visit,), _at_home),
    ((Mark,), decided_marks),
    ((Put,), decided_puts),
    ((Draft, Move), decided_moves),
    ((Signal,), numbered),
    ((Start, Again), decided_starts),
    ((Settled,), _as_they_are),
)
"""After the state, and in this order for everybody: locks that are taken in one order lock nobody out."""


class _Resolving:
    """Finds out what the asks come to."""

    def __init__(self, store: Store, asks: Sequence[Ask], revisions: Mapping[Space, int]) -> None:
        self._store = store
        self._asks = asks
        self._wanted = revisions
        self._now = store.clock.wall_ms()
        self.objects: list[Statement] = []
        self._written: dict[Place, Sequence[Statement]] = {}
        self._documents: dict[Place, Sequence[Document] | None] = {}

    def run(self) -> Script[tuple[records.StateChange, ...]]:
        """The changes, in the order in which their keys were first named; several asks of one key are one change."""
        if not self._asks and not self._wanted:
            return ()
        # In one order for everybody, so that two who want the same two namespaces do not wait for each other.
        spaces = sorted({ask.place[:2] for ask in self._asks} | set(self._wanted))
        places = list(dict.fromkeys(ask.place for ask in self._asks))
        rows = yield [
            *(Statement("lock_space", space) for space in spaces),
            *(Statement("get_space", space) for space in spaces),
            *(Statement("get_entry", place) for place in places),
        ]
        revisions = {space: _first(found) for space, found in zip(spaces, rows[len(spaces) :], strict=False)}
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

    def _apply(self, ask: Ask, stored: Entry, entry: Entry) -> Script[Entry]:
        found = stored.seen(self._now)
        if ask.touches:
            return self._touched(ask, stored, entry)
        fresh = entry is not stored and not entry.touched
        if fresh:  # changed by an earlier ask, with which this one becomes one version
            found = Entry(entry.value, stored.version + 1 if entry.value else 0)
        if ask.if_version is not None and ask.if_version != found.version:
            yield from self._refuse(ask, found)
        if not ask.writes or (ask.sweeps and (entry is not stored or found.value)):
            return entry
        packed, made, there = ask.packed, ask.objects, entry.seen(ask.called if fresh else self._now)
        if ask.make is not None:
            value = yield from self._value(ask.place, there)
            packed, made = objects.pack(self._store, decide(ask.make, value), ask.path)
        self.objects += made
        self._written[ask.place] = made
        self._documents[ask.place] = ask.documents
        timed = there if ask.keeps else ask
        return Entry(packed, entry.version, timed.expires, lasts=timed.lasts)

    def _touched(self, ask: Ask, stored: Entry, entry: Entry) -> Entry:
        """A value that was changed since it was read, or is gone, is left alone; of two who read, the later counts."""
        changed = entry is not stored and not entry.touched
        if changed or ask.touches != stored.seen(self._now).version:
            return entry
        if ask.documents is not None:
            self._documents[ask.place] = ask.documents
        return msgspec.structs.replace(entry, expires=max(entry.expires, ask.expires), touched=True)

    def _value(self, place: Place, entry: Entry) -> Script[Any]:
        if not entry.value:
            return None
        if made := self._written.get(place):  # by an earlier ask: not in the store yet
            return objects.opened(entry.value, made)
        return (yield from objects.unpack_within(self._store, entry.value))

    def _refuse(self, ask: Ask, found: Entry) -> Script[None]:
        theirs = yield from self._value(ask.place, found)
        inline = ask.packed if ask.writes and ask.make is None else b""
        raise VersionConflict(
            f"{ask.path} has version {found.version}, not {ask.if_version}",
            expected=ask.if_version or 0,
            found=found.version,
            yours=objects.opened(ask.packed, ask.objects) if inline else None,
            theirs=theirs,
        )

    def _changes(
        self, before: Mapping[Place, Entry], after: Mapping[Place, Entry], revisions: dict[Space, int]
    ) -> tuple[records.StateChange, ...]:
        changes = []
        for place, entry in after.items():
            old = before[place]
            if entry is old or not (entry.value or old.value):
                continue  # not written, or deleted where nothing is
            changes.append(self._change(place, old, entry, revisions))
        return tuple(changes)

    def _change(self, place: Place, old: Entry, entry: Entry, revisions: dict[Space, int]) -> records.StateChange:
        owner, space, key = place
        revision = revisions[owner, space] = revisions[owner, space] + 1
        version = old.version if entry.touched else old.version + 1
        self._index(place, version, old, entry)
        there = old.seen(self._now)
        created = (old.created if entry.touched else there.created or there.at) if entry.value else 0
        seen = (entry.expires, created, entry.lasts, old.at if entry.touched else 0)
        return records.StateChange(owner, space, key, version, revision, entry.value, *seen)

    def _index(self, place: Place, version: int, old: Entry, entry: Entry) -> None:
        """What a value can be found by is written with it: nobody finds it by what it was."""
        documents = self._documents.get(place)
        if entry.touched and documents is None:
            return
        if old.indexed:
            self.objects += documents_dropped(state_place(place))
        self.objects += documents_of(state_place(place), version, documents or ())


def landed_at(store: Store, stream: int, seq: int, kind: type[Part]) -> list[Part]:
    """What has landed with an entry, of one kind."""
    [(_, code, _, body, _, _)] = store.read("event_at", (stream, seq))
    return landed_in(code, body, kind)


def landed_in(code: int, body: bytes, kind: type[Part]) -> list[Part]:
    """The same of an entry that has been read already."""
    return [it for it in getattr(records.decode(code, body), "landed", ()) if isinstance(it, kind)]


def _entry(value: bytes, version: int, _: int, at: int, expires: int, created: int, lasts: int, indexed: int) -> Entry:
    return Entry(value, version, expires, at, created, lasts, bool(indexed))


def _first(rows: Sequence[tuple[Any, ...]]) -> int:
    return int(rows[0][0]) if rows else 0
