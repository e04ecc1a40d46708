"""Reduces events to a value and saves the result, so that the next replay starts from there.

A saved result belongs to its snapshot name, the reducer's version and the initial value. Perdure cannot see what a
reducer calls, so that the program states the version. Without one, nothing is saved or reused.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.data.events import compaction
from perdure.data.events.positions import BEGINNING, EventPosition, parse_token, read_settled_end
from perdure.data.events.read import Event, EventPages, EventQuery, EventReader, book_of
from perdure.errors import WrongType, WrongValue
from perdure.journal import objects
from perdure.journal.agent_writes import SetKey
from perdure.kernel.awaitables import is_async, require_plain
from perdure.kernel.names import check_storable_name
from perdure.kernel.protocol import Protocol, Read, Submit
from perdure.kernel.write_routing import land
from perdure.platform.failpoints import Site
from perdure.store.base import FinalBatch, Script, Statement, Store, UnitOfWork
from perdure.store.rows import first_number
from perdure.values import codec
from perdure.values.limits import REPLAYS_KEPT

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

Reducer = Callable[[Any, Event], Any]


class Reduction(msgspec.Struct, frozen=True):
    """A replay: the reducer, the initial value and the events."""

    reducer: Reducer
    initial: Any
    wanted: EventQuery
    snapshot: str | None
    """The name under which results are saved; None saves nothing."""
    every: int
    version: str | int | None = None
    """Identifies the reducer's code; None saves nothing."""

    def __post_init__(self) -> None:
        if is_async(self.reducer) or not callable(self.reducer):
            raise WrongType(f"a reducer must be a plain function of (state, event), not {self.reducer!r}")
        if type(self.every) is not int or self.every < 1:
            raise WrongValue(f"every={self.every!r}: must be an int from 1")
        if self.version is not None and type(self.version) not in (int, str):
            raise WrongType(f"version={self.version!r}: must be an int or a str")

    @property
    def saved(self) -> bool:
        """Whether results are saved and reused."""
        return self.snapshot is not None and self.version is not None


def replay(engine: Engine, reduction: Reduction) -> Protocol[Any]:
    """Reduce events in order."""
    pages = EventPages(lambda: book_of(engine), reduction.wanted)
    keeper, state = yield Read(_begin, (engine, reduction, pages))
    while events := (yield Read(_read_next_page, (pages, keeper))):
        for event in events:
            state = require_plain(reduction.reducer(state, event), reduction.reducer)
            if keeper is not None and (kept := keeper.count_event(event, state)) is not None:
                yield Submit(kept)
    if keeper is not None and (kept := keeper.finish(state)) is not None:
        yield Submit(kept)
    return state


def _begin(engine: Engine, reduction: Reduction, pages: EventPages) -> tuple[_ResultSaver | None, Any]:
    """Start from the last saved result, or from the first event if it still exists."""
    state, book = copy.deepcopy(reduction.initial), pages.begin()
    if book is None:
        return None, state
    keeper = _ResultSaver(engine.store, book, reduction)
    found = keeper.find_saved(pages.to)
    if found is not None:
        pages.after, packed = found
        state = objects.unpack(engine.store, packed)
    elif keeper.floor:
        what = "a replay needs all events" + (" after its last snapshot" if reduction.saved else "")
        raise compaction.compacted_error(book.agent, keeper.floor, what)
    return keeper, state


def _read_next_page(pages: EventPages, keeper: _ResultSaver | None) -> list[Event]:
    """Return the next page. Raises if events were compacted while it was read."""
    events = pages.read_next_page()
    if keeper is not None:
        keeper.refuse_compacted()
    return events


class _ResultSaver:
    """Saves a result every `every` events, but only where no earlier event can appear any more."""

    def __init__(self, store: Store, book: EventReader, reduction: Reduction) -> None:
        self._store = store
        self._book = book
        self._reduction = reduction
        self._settled = read_settled_end(store)
        self._passed = 0
        self._last = BEGINNING
        self.key = _key(reduction) if reduction.saved else b""
        """The key of saved results; empty if none are saved."""
        self._known = not self.key
        """Whether a result is saved. `gc` uses it to keep the events that this replay has not passed yet."""
        self.floor = book.floor(reduction.wanted)

    def find_saved(self, to: EventPosition) -> tuple[EventPosition, bytes] | None:
        """Return a saved result that covers all compacted events, and its position."""
        if not self.key:
            return None
        owner = self._book.owner
        for *place, packed in self._store.read("last_replay_snapshot", (owner, self.key, *to)):
            if EventPosition(*place) == BEGINNING:
                break
            self._known = True
            at = first_number(self._store.read("has_event", (owner, *place)))
            if not self.floor or at > self.floor:
                return EventPosition(*place), packed
        carried = compaction.read_carried(self._store, owner, self.key) if self.floor else None
        return carried if carried is not None and carried[0] <= to else None

    def refuse_compacted(self) -> None:
        """Raise if events were compacted during the replay: a partial result would be wrong."""
        if (floor := self._book.floor(self._reduction.wanted)) != self.floor:
            raise compaction.compacted_error(self._book.agent, floor, "it happened during this replay; replay again")

    def count_event(self, event: Event, state: Any) -> _SaveResult | None:
        """Count an event. Returns a save when one is due."""
        self._passed += 1
        self._last = parse_token(event.position)
        if not self.key or self._passed < self._reduction.every or self._last > self._settled:
            return None
        self._passed = 0
        return self._keep(self._last, state)

    def finish(self, state: Any) -> _SaveResult | None:
        """Save a first result of a new replay, however few events there were."""
        if self._known:
            return None
        settled = self._last <= self._settled
        return self._keep(self._last, state) if settled else self._keep(BEGINNING, self._reduction.initial)

    def _keep(self, position: EventPosition, state: Any) -> _SaveResult:
        self._known = True
        packed, made = objects.pack(self._store, state, "the state of a replay with snapshot=")
        return _SaveResult((self._book.owner, self.key), position, packed, made)


class _SaveResult(UnitOfWork[None]):
    """Saves a replay result. Idempotent."""

    site = Site.REPLAY

    def __init__(self, which: tuple[int, bytes], position: EventPosition, packed: bytes, made: Any) -> None:
        self._which = which
        self._statements = [*made, Statement("put_replay_snapshot", (*which, *position, packed))]

    def script(self) -> Script[None]:
        yield FinalBatch([*self._statements, Statement("prune_replay_snapshots", (*self._which, REPLAYS_KEPT))])


def forget(engine: Engine, snapshot: str) -> Protocol[None]:
    """Delete the saved results of a snapshot name, so that they hold back no events from compaction."""
    prefix = _make_key_prefix(check_storable_name(snapshot, "a snapshot"))
    if (yield Read(engine.is_known)):
        asks: list[SetKey] = yield Read(compaction.delete_carried, (engine, prefix.hex()))
        if asks:
            yield from land(engine, Site.STATE, asks)
        yield Submit(_DeleteResults(engine.stream, prefix))


class _DeleteResults(UnitOfWork[None]):
    """Deletes saved replay results. Idempotent."""

    site = Site.REPLAY

    def __init__(self, owner: int, prefix: bytes) -> None:
        self._whose = (owner, prefix)

    def script(self) -> Script[None]:
        yield FinalBatch([Statement("drop_replay_snapshots", self._whose)])


# -- keys of saved results ------------------------------------------------------------------------------------------


def _key(reduction: Reduction) -> bytes:
    """Return a key for everything that a result depends on besides the events."""
    digest = blake2b(digest_size=24)
    wanted = reduction.wanted
    asked = (reduction.snapshot, reduction.version, sorted(wanted.kinds), wanted.run, wanted.typed)
    for part in (codec.encode(asked), codec.encode(reduction.initial, "initial")):
        digest.update(len(part).to_bytes(8, "big") + part)
    return _make_key_prefix(reduction.snapshot or "") + digest.digest()


def _make_key_prefix(snapshot: str) -> bytes:
    """Return the prefix of the keys of a snapshot name."""
    return blake2b(snapshot.encode(), digest_size=8).digest()
