"""Where in a run the code is: the frame of the innermost step, effect, item or run, found by a context variable."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING

import msgspec

from ..errors import Abandoned, NotDurable
from ..journal.landing import Wanted
from ..records import Op, Usage, Write
from ..store.base import Statement, Store

if TYPE_CHECKING:
    from .core import RunCore
    from .requests import Interruptible


_ALL_LAND = frozenset({Op.MESSAGE, Op.EVENT, Op.PIN, Op.COMPACT})
"""Of others, the last one of a key."""


class Buffer:
    """Writes that wait for the end of a step, an effect or an item, to land with it or be dropped with it."""

    __slots__ = ("asks", "objects", "result", "state", "usage", "writes")

    def __init__(self) -> None:
        self.writes: list[Write] = []
        self.asks: list[Wanted] = []
        """Writes to the agent, decided when they land."""
        self.objects: list[Statement] = []
        self.state: dict[str, Write] = {}
        self.result: Write | None = None
        self.usage: tuple[Usage, ...] = ()
        """What the calls of models in it came to: spent, whether it lands or not."""

    def add(self, write: Write, objects: Sequence[Statement]) -> None:
        """Keep a write; of several to one key, the last."""
        self.objects += objects
        if write.op in (Op.SET, Op.DELETE):
            self.state[write.key] = write
        elif write.op == Op.RESULT:
            self.result = write
        self.writes.append(write)

    def supersede(self, writes: tuple[Write, ...]) -> None:
        """Something later in program order has landed already: an earlier write to its keys must not overtake it."""
        for write in writes:
            if write.op in (Op.SET, Op.DELETE):
                self.state.pop(write.key, None)
            elif write.op == Op.RESULT:
                self.result = None

    def landing(self) -> tuple[Write, ...]:
        """What lands: of each key, as of the result, the write that is still the last; of what has no key, all."""
        if not self.writes:
            return ()
        last = {id(write) for write in (*self.state.values(), self.result)}
        return tuple(w for w in self.writes if w.op in _ALL_LAND or id(w) in last)

    def used(self, step: str) -> tuple[Usage, ...]:
        """The usage, as that of a step or an effect."""
        return tuple(msgspec.structs.replace(one, step=step) for one in self.usage) if self.usage else ()


class Begun(msgspec.Struct, frozen=True, gc=False):
    """A step, an effect or a loop of the run itself that the code has come to."""

    mark: int
    """Where in the trail it begins."""
    since: int
    """The last entry before it."""
    loop: str
    """How the scopes of a loop's items begin."""


class Frame:
    """One level of the code's position in a run."""

    __slots__ = (
        "alive", "attempt", "awaited", "buffer", "counts", "inside", "intent", "parent", "path", "run", "timeout",
        "trail", "units",
    )  # fmt: skip

    def __init__(self, run: RunCore, path: str, parent: Frame | None, inside: str, buffer: Buffer | None) -> None:
        self.run = run
        self.path = path
        """The scope: "" for the run, "1:ab12/" for an item of its first loop, and so on."""
        self.parent = parent
        self.inside = inside
        """"step" or "effect" in a body, "" elsewhere."""
        self.buffer = buffer
        self.counts: dict[tuple[str, bytes], int] = {}
        """How many calls of each kind this scope has seen: the k of matching."""
        self.alive = True
        self.intent = 0
        """In the body of an effect: the number of its intent."""
        self.attempt = 0
        """In the body of an effect: how many attempts this process had given up when it began."""
        self.timeout: float | None = None
        """In the body of an effect: how long it may take."""
        self.awaited: Interruptible | None = None
        """In a body under asyncio: what can be cancelled."""
        self.trail: list[tuple[str, bytes]] | None = None
        """Of the run itself: all that was counted, in order, so that it can be counted back."""
        self.units: list[Begun] | None = None
        """And the steps, effects and loops among them."""

    def body(self, inside: str) -> Frame:
        """The frame in which a body runs."""
        return Frame(self.run, self.path, self, inside, Buffer())

    def item(self, path: str) -> Frame:
        """The frame of one item of a loop."""
        return Frame(self.run, path, self, "", Buffer())

    def count(self, name: str, ident: bytes) -> int:
        """Which call with that name and those arguments this is, from 0."""
        key = (name, ident)
        with self.run.lock:
            nth = self.counts.get(key, 0)
            self.counts[key] = nth + 1
            if self.trail is not None:
                self.trail.append(key)
        return nth

    def mark(self) -> int:
        """Where in the trail something begins."""
        return len(self.trail) if self.trail is not None else 0

    def begin(self, mark: int, since: int, loop: str = "") -> None:
        """Something begins that can be undone."""
        if self.units is not None:
            self.units.append(Begun(mark, since, loop))

    def begun_last(self, steps: int) -> list[Begun]:
        """The last of them."""
        return (self.units or [])[-steps:]

    def go_back(self, steps: int) -> None:
        """Count back to before them."""
        if not self.units or self.trail is None:
            return
        with self.run.lock:
            mark = min(begun.mark for begun in self.units[-steps:])
            for key in self.trail[mark:]:
                self.counts[key] -= 1
            del self.trail[mark:], self.units[-steps:]

    def uncount(self, name: str, ident: bytes) -> None:
        """A call came to nothing that is recorded: the next one takes its place."""
        with self.run.lock:
            if (name, ident) in self.counts:
                self.counts[name, ident] -= 1
                self._unmark((name, ident))

    def _unmark(self, key: tuple[str, bytes]) -> None:
        if self.trail is not None and self.units is not None:
            mark = len(self.trail) - 1 - self.trail[::-1].index(key)
            del self.trail[mark]
            self.units = [one for one in self.units if one.mark != mark]


FRAME: ContextVar[Frame | None] = ContextVar("perdure_frame", default=None)


def current() -> Frame | None:
    """The innermost frame; a loop that was left by `break` does not count."""
    frame = FRAME.get()
    while frame is not None and not frame.alive and not frame.inside:
        frame = frame.parent
    return frame


def waiting(store: Store) -> list[Wanted]:
    """What waits in the bodies and items around the caller to be written to agents of a store; outermost first."""
    found: list[Wanted] = []
    frame = current()
    while frame is not None and frame.run.store is store:
        if frame.buffer is not None:
            found = frame.buffer.asks + found
        frame = frame.parent
    return found


def take_back(store: Store, unwanted: Sequence[Wanted]) -> None:
    """Some of what waits around the caller is not to land."""
    gone = {id(it) for it in unwanted}
    frame = current()
    while frame is not None and frame.run.store is store:
        if frame.buffer is not None:
            frame.buffer.asks[:] = [it for it in frame.buffer.asks if id(it) not in gone]
        frame = frame.parent


def frame_of(run: RunCore) -> Frame:
    """The innermost frame that belongs to this run, from which something is about to be written or read."""
    frame = current()
    while frame is not None and frame.run is not run:
        frame = frame.parent
    if frame is None and not run.root.alive:
        raise NotDurable(f"run {run.id!r} is not open any more", hint="use it inside its with block")
    if frame is None:
        raise NotDurable(f"run {run.id!r} is used where its context did not reach")
    if not frame.alive:
        raise Abandoned
    return frame
