"""Folding events into a value, and keeping what that came to, so that the next fold begins there.

What is kept is bound to a name that the user gives, the code of the reducer and the initial value: a reducer that was
changed begins anew. What it calls is not part of its code; who changes that gives another name.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import blake2b
from types import CodeType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import msgspec

from .. import codec, objects
from ..errors import NotStorable
from ..failpoints import Site
from ..limits import REPLAYS_KEPT
from ..run.requests import Protocol, Read, Submit
from ..store.base import Last, Script, Statement, Store, Unit
from .positions import Position, read_token, settled_end
from .reading import Asked, Book, Event, Pages, book_of

if TYPE_CHECKING:
    from ..engine import Engine

Reducer = Callable[[Any, Event], Any]


class Fold(msgspec.Struct, frozen=True):
    """What is to be folded, and how."""

    reducer: Reducer
    initial: Any
    wanted: Asked
    snapshot: str | None
    """Under which name the result is kept now and then; None keeps nothing."""
    every: int

    def __post_init__(self) -> None:
        if inspect.iscoroutinefunction(self.reducer):
            raise TypeError(f"a reducer is a plain function of (state, event), not {self.reducer!r}")
        if type(self.every) is not int or self.every < 1:
            raise ValueError(f"every={self.every!r}: a number of events, from 1")


def replay(engine: Engine, fold: Fold) -> Protocol[Any]:
    """Fold events in their order."""
    pages = Pages(lambda: book_of(engine), fold.wanted)
    state, keeper = copy.deepcopy(fold.initial), None
    if fold.snapshot is not None:
        keeper, state = yield Read(_resume, (engine, fold, pages, state))
    while events := (yield Read(pages.turn)):
        for event in events:
            state = fold.reducer(state, event)
            if keeper is not None and (kept := keeper.passed(event, state)) is not None:
                yield Submit(kept)
    return state


def _resume(engine: Engine, fold: Fold, pages: Pages, state: Any) -> tuple[_Keeper | None, Any]:
    """Begin where the last kept result ends."""
    book = pages.begin()
    if book is None:
        return None, state
    keeper = _Keeper(engine.store, book, fold)
    rows = engine.store.read("last_replay", (book.owner, keeper.key, *pages.to))
    if rows:
        *place, packed = rows[0]
        pages.after = Position(*place)
        state = objects.unpack(engine.store, packed)
    return keeper, state


class _Keeper:
    """Keeps a result every so many events; only where nothing can appear before it any more."""

    def __init__(self, store: Store, book: Book, fold: Fold) -> None:
        self._store = store
        self._owner = book.owner
        self._every = fold.every
        self._settled = settled_end(store)
        self._passed = 0
        self.key = _key(fold)

    def passed(self, event: Event, state: Any) -> _Keep | None:
        """One more event is in the state."""
        self._passed += 1
        position = read_token(event.position)
        if self._passed < self._every or position > self._settled:
            return None
        self._passed = 0
        packed, made = objects.pack(self._store, state, "the state of a replay with snapshot=")
        return _Keep((self._owner, self.key), position, packed, made)


class _Keep(Unit[None]):
    """Done twice, it is the same as done once."""

    site = Site.REPLAY

    def __init__(self, which: tuple[int, bytes], position: Position, packed: bytes, made: Any) -> None:
        self._which = which
        self._statements = [*made, Statement("put_replay", (*which, *position, packed))]

    def script(self) -> Script[None]:
        yield Last([*self._statements, Statement("thin_replays", (*self._which, REPLAYS_KEPT))])


# -- what a kept result is bound to -----------------------------------------------------------------------------------


def _key(fold: Fold) -> bytes:
    digest = blake2b(digest_size=32)
    wanted = fold.wanted
    asked = (fold.snapshot, sorted(wanted.kinds), wanted.run, wanted.typed)
    for part in (codec.encode(asked), codec.encode(fold.initial, "initial"), *_code_of(fold.reducer)):
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.digest()


def _code_of(call: Any) -> Iterator[bytes]:
    """The code of a function with what it is bound to."""
    if isinstance(call, partial):
        yield _value((call.args, call.keywords))
        yield from _code_of(call.func)
    elif isinstance(call, MethodType):
        yield from _code_of(call.__func__)
    elif isinstance(call, FunctionType):
        yield _value((call.__defaults__, call.__kwdefaults__))
        for cell in call.__closure__ or ():
            yield from _code_of(cell.cell_contents)
        yield from _compiled(call.__code__)
    elif callable(call):
        yield getattr(call, "__qualname__", type(call).__qualname__).encode()
    else:
        yield _value(call)


def _compiled(code: CodeType) -> Iterator[bytes]:
    yield code.co_code
    yield repr((code.co_names, code.co_varnames)).encode()
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _compiled(constant)
        else:
            yield repr(constant).encode()


def _value(value: Any) -> bytes:
    try:
        return codec.encode(value)
    except NotStorable:
        return type(value).__qualname__.encode()
