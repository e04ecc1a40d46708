"""Reduces events to a value and saves the result, so that the next replay starts from there.

A saved result belongs to its snapshot name, the reducer and the initial value. A changed reducer starts again. For a
reducer without a fingerprint (`reducers.py`) nothing is saved.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec

from .. import codec, objects
from ..failpoints import Site
from ..journal.landing import Ask
from ..limits import REPLAYS_KEPT
from ..run.awaitables import is_async, plain
from ..run.requests import Protocol, Read, Submit
from ..run.writes import named
from ..state import land
from ..store.base import Last, Script, Statement, Store, Unit
from . import horizon
from .positions import BEGINNING, Position, read_token, settled_end
from .reading import Asked, Book, Event, Pages, book_of
from .reducers import parts_of

if TYPE_CHECKING:
    from ..engine import Engine

Reducer = Callable[[Any, Event], Any]


class Fold(msgspec.Struct, frozen=True):
    """A replay: the reducer, the initial value and the events."""

    reducer: Reducer
    initial: Any
    wanted: Asked
    snapshot: str | None
    """The name under which results are saved; None saves nothing."""
    every: int

    def __post_init__(self) -> None:
        if is_async(self.reducer):
            raise TypeError(f"a reducer must be a plain function of (state, event), not {self.reducer!r}")
        if type(self.every) is not int or self.every < 1:
            raise ValueError(f"every={self.every!r}: must be an int from 1")


def replay(engine: Engine, fold: Fold) -> Protocol[Any]:
    """Reduce events in order."""
    pages = Pages(lambda: book_of(engine), fold.wanted)
    keeper, state = yield Read(_begin, (engine, fold, pages))
    while events := (yield Read(_turn, (pages, keeper))):
        for event in events:
            state = plain(fold.reducer(state, event), fold.reducer)
            if keeper is not None and (kept := keeper.passed(event, state)) is not None:
                yield Submit(kept)
    if keeper is not None and (kept := keeper.ended(state)) is not None:
        yield Submit(kept)
    return state


def _begin(engine: Engine, fold: Fold, pages: Pages) -> tuple[_Keeper | None, Any]:
    """Start from the last saved result, or from the first event if it still exists."""
    state, book = copy.deepcopy(fold.initial), pages.begin()
    if book is None:
        return None, state
    keeper = _Keeper(engine.store, book, fold)
    found = keeper.found(pages.to)
    if found is not None:
        pages.after, packed = found
        state = objects.unpack(engine.store, packed)
    elif keeper.floor:
        what = "a replay needs all events" + (" after its last snapshot" if fold.snapshot is not None else "")
        raise horizon.refused(book.agent, keeper.floor, what)
    return keeper, state


def _turn(pages: Pages, keeper: _Keeper | None) -> list[Event]:
    """Return the next page. Raises if events were compacted while it was read."""
    events = pages.turn()
    if keeper is not None:
        keeper.refuse_folded()
    return events


class _Keeper:
    """Saves a result every `every` events, but only where no earlier event can appear any more."""

    def __init__(self, store: Store, book: Book, fold: Fold) -> None:
        self._store = store
        self._book = book
        self._fold = fold
        self._settled = settled_end(store)
        self._passed = 0
        self._last = BEGINNING
        self.key = _key(fold) if fold.snapshot is not None else b""
        """The key of saved results; empty if none are saved."""
        self._known = not self.key
        """Whether a result is saved. `gc` uses it to keep the events that this replay has not passed yet."""
        self.floor = book.floor(fold.wanted)

    def found(self, to: Position) -> tuple[Position, bytes] | None:
        """Return a saved result that covers all compacted events, and its position."""
        if not self.key:
            return None
        owner = self._book.owner
        for *place, packed in self._store.read("last_replay", (owner, self.key, *to)):
            if Position(*place) == BEGINNING:
                break
            self._known = True
            at = self._store.read("has_happening", (owner, *place))
            if not self.floor or (at and at[0][0] > self.floor):
                return Position(*place), packed
        carried = horizon.carried(self._store, owner, self.key) if self.floor else None
        return carried if carried is not None and carried[0] <= to else None

    def refuse_folded(self) -> None:
        """Raise if events were compacted during the replay: a partial result would be wrong."""
        if (floor := self._book.floor(self._fold.wanted)) != self.floor:
            raise horizon.refused(self._book.agent, floor, "it happened during this replay; replay again")

    def passed(self, event: Event, state: Any) -> _Keep | None:
        """Count an event. Returns a save when one is due."""
        self._passed += 1
        self._last = read_token(event.position)
        if not self.key or self._passed < self._fold.every or self._last > self._settled:
            return None
        self._passed = 0
        return self._keep(self._last, state)

    def ended(self, state: Any) -> _Keep | None:
        """Save a first result of a new replay, however few events there were."""
        if self._known:
            return None
        settled = self._last <= self._settled
        return self._keep(self._last, state) if settled else self._keep(BEGINNING, self._fold.initial)

    def _keep(self, position: Position, state: Any) -> _Keep:
        self._known = True
        packed, made = objects.pack(self._store, state, "the state of a replay with snapshot=")
        return _Keep((self._book.owner, self.key), position, packed, made)


class _Keep(Unit[None]):
    """Saves a replay result. Idempotent."""

    site = Site.REPLAY

    def __init__(self, which: tuple[int, bytes], position: Position, packed: bytes, made: Any) -> None:
        self._which = which
        self._statements = [*made, Statement("put_replay", (*which, *position, packed))]

    def script(self) -> Script[None]:
        yield Last([*self._statements, Statement("thin_replays", (*self._which, REPLAYS_KEPT))])


def forget(engine: Engine, snapshot: str) -> Protocol[None]:
    """Delete the saved results of a snapshot name, so that they hold back no events from compaction."""
    prefix = _named(named(snapshot, "a snapshot"))
    if (yield Read(engine.is_known)):
        asks: list[Ask] = yield Read(horizon.forgetting, (engine, prefix.hex()))
        if asks:
            yield from land(engine, Site.STATE, asks)
        yield Submit(_Forget(engine.stream, prefix))


class _Forget(Unit[None]):
    """Deletes saved replay results. Idempotent."""

    site = Site.REPLAY

    def __init__(self, owner: int, prefix: bytes) -> None:
        self._whose = (owner, prefix)

    def script(self) -> Script[None]:
        yield Last([Statement("drop_replays", self._whose)])


# -- keys of saved results ------------------------------------------------------------------------------------------


def _key(fold: Fold) -> bytes:
    """Return a key for everything that a result depends on besides the events; empty if there is no fingerprint."""
    code = parts_of(fold.reducer)
    if code is None:
        return b""
    digest = blake2b(digest_size=24)
    wanted = fold.wanted
    asked = (fold.snapshot, sorted(wanted.kinds), wanted.run, wanted.typed)
    for part in (codec.encode(asked), codec.encode(fold.initial, "initial"), *code):
        digest.update(len(part).to_bytes(8, "big") + part)
    return _named(fold.snapshot or "") + digest.digest()


def _named(snapshot: str) -> bytes:
    """Return the prefix of the keys of a snapshot name."""
    return blake2b(snapshot.encode(), digest_size=8).digest()
