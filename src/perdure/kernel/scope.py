"""The code's position in a run: the frame of the innermost step, effect, item or run, in a context variable."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from threading import Lock
from typing import TYPE_CHECKING, Protocol

import msgspec

from perdure.errors import Abandoned, NotDurable, RunStopped
from perdure.journal.agent_writes import AgentWrite
from perdure.records import ModelUsage, RunWrite, WriteOp
from perdure.store.base import Statement, Store

if TYPE_CHECKING:
    from perdure.journal.append import StreamHead
    from perdure.kernel.bodies import EffectBodies
    from perdure.kernel.engine import Engine
    from perdure.kernel.protocol import InterruptibleTask


class OpenRun(Protocol):
    """An open run, as far as the kernel and the agent's data need it."""

    engine: Engine
    store: Store
    id: str
    head: StreamHead
    root: Frame
    lock: Lock
    bodies: EffectBodies

    @property
    def cleans_up(self) -> bool:
        """Whether a cancelled run executes its cleanup code."""

    def stop_error(self) -> RunStopped | None:
        """Return the error that stops the code here, if the run was ordered to stop."""


_ALL_LAND = frozenset({WriteOp.MESSAGE, WriteOp.EVENT, WriteOp.PIN, WriteOp.COMPACT, WriteOp.THREAD})
"""Writes that all land. Of the others, only the last one to each key does."""


class WriteBuffer(msgspec.Struct, eq=False):
    """Writes that land with the end of a step, effect or item, or are dropped with it."""

    writes: list[RunWrite] = []
    asks: list[AgentWrite] = []
    """Writes to the agent, decided when they land."""
    objects: list[Statement] = []
    state: dict[str, RunWrite] = {}
    result: RunWrite | None = None
    usage: tuple[ModelUsage, ...] = ()
    """Usage of the model calls in the body: spent, whether the writes land or not."""

    def add(self, write: RunWrite, objects: Sequence[Statement]) -> None:
        """Add a write. It replaces an earlier one to the same key."""
        self.objects += objects
        if write.op in (WriteOp.SET, WriteOp.DELETE):
            self.state[write.key] = write
        elif write.op == WriteOp.RESULT:
            self.result = write
        self.writes.append(write)

    def supersede(self, writes: tuple[RunWrite, ...]) -> None:
        """Drop writes to keys that later code has already written: an earlier write must not overwrite them."""
        for write in writes:
            if write.op in (WriteOp.SET, WriteOp.DELETE):
                self.state.pop(write.key, None)
            elif write.op == WriteOp.RESULT:
                self.result = None

    def landing_writes(self) -> tuple[RunWrite, ...]:
        """Return the writes that land: the last one for each key and for the result, and all that have no key."""
        last = {id(write) for write in (*self.state.values(), self.result)}
        return tuple(w for w in self.writes if w.op in _ALL_LAND or id(w) in last)

    def take_usage(self, step: str) -> tuple[ModelUsage, ...]:
        """Return the usage, attributed to a step or an effect."""
        return tuple(msgspec.structs.replace(one, step=step) for one in self.usage)


class BegunCall(msgspec.Struct, frozen=True, gc=False):
    """A step, effect or loop of the run itself that the code has reached."""

    mark: int
    """Its index in the trail."""
    since: int
    """The last entry before it."""
    loop: str = ""
    """The common prefix of the scopes of a loop's items."""


class Frame(msgspec.Struct, eq=False):
    """One level of the code's position in a run."""

    run: OpenRun
    path: str
    """The scope: "" for the run, "1:ab12/" for an item of its first loop, and so on."""
    parent: Frame | None
    inside: str
    """"step" or "effect" in a body, "" elsewhere."""
    buffer: WriteBuffer | None
    counts: dict[tuple[str, bytes], int] = {}
    """How many calls of each kind this scope has made; matching uses it as the call's number."""
    alive: bool = True
    intent: int = 0
    """In the body of an effect: the number of its intent."""
    attempt: int = 0
    """In the body of an effect: how many attempts were over when it began."""
    timeout: float | None = None
    """In the body of an effect: its time limit in seconds."""
    awaited: InterruptibleTask | None = None
    """In a body under asyncio: the task that can be cancelled."""
    trail: list[tuple[str, bytes]] | None = None
    """Of the run itself: every counted call in order, so that `undo` can count back."""
    units: list[BegunCall] | None = None
    """Of the run itself: the steps, effects and loops in the trail."""

    def body(self, inside: str) -> Frame:
        """The frame in which a body runs."""
        return Frame(self.run, self.path, self, inside, WriteBuffer())

    def item(self, path: str) -> Frame:
        """The frame of one item of a loop."""
        return Frame(self.run, path, self, "", WriteBuffer())

    def count(self, name: str, ident: bytes) -> int:
        """Count a call, and return its number among calls with the same name and arguments, from 0."""
        key = (name, ident)
        with self.run.lock:
            nth = self.counts.get(key, 0)
            self.counts[key] = nth + 1
            if self.trail is not None:
                self.trail.append(key)
        return nth

    def mark(self) -> int:
        """Return the index in the trail at which the next call begins."""
        return len(self.trail) if self.trail is not None else 0

    def begin(self, mark: int, since: int, loop: str = "") -> None:
        """Record a step, effect or loop, so that it can be undone."""
        if self.units is not None:
            self.units.append(BegunCall(mark, since, loop))

    def last_begun_calls(self, steps: int) -> list[BegunCall]:
        """Return the last steps, effects and loops."""
        return (self.units or [])[-steps:]

    def rewind_counts(self, steps: int) -> None:
        """Count back to before the last steps, effects and loops."""
        if not self.units or self.trail is None:
            return
        with self.run.lock:
            mark = min(begun.mark for begun in self.units[-steps:])
            for key in self.trail[mark:]:
                self.counts[key] -= 1
            del self.trail[mark:], self.units[-steps:]

    def uncount(self, name: str, ident: bytes) -> None:
        """Undo the count of a call that recorded nothing, so that the next one gets its number."""
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


def current_frame() -> Frame | None:
    """Return the innermost frame, ignoring loops that were left by `break`."""
    frame = FRAME.get()
    while frame is not None and not frame.alive and not frame.inside:
        frame = frame.parent
    return frame


DRAFTS: dict[Store, WriteBuffer] = {}
"""In a rehearsal, by store: writes to agents outside of bodies and items. Later code sees them; they never land."""


def innermost_buffer(store: Store) -> WriteBuffer | None:
    """Return the buffer in which a write to an agent of this store waits, if it does."""
    frame = current_frame()
    if frame is not None and frame.run.store is store and frame.buffer is not None:
        return frame.buffer
    return DRAFTS.get(store)


def list_buffered_writes(store: Store) -> list[AgentWrite]:
    """Return the buffered writes to agents of a store in the enclosing bodies and items, outermost first."""
    found: list[AgentWrite] = []
    frame = current_frame()
    while frame is not None and frame.run.store is store:
        if frame.buffer is not None:
            found = frame.buffer.asks + found
        frame = frame.parent
    return DRAFTS[store].asks + found if store in DRAFTS else found


def discard_writes(store: Store, unwanted: Sequence[AgentWrite]) -> None:
    """Remove some buffered writes from the enclosing bodies and items."""
    gone = {id(write) for write in unwanted}
    frame = current_frame()
    while frame is not None and frame.run.store is store:
        if frame.buffer is not None:
            frame.buffer.asks[:] = [write for write in frame.buffer.asks if id(write) not in gone]
        frame = frame.parent
    if store in DRAFTS:
        DRAFTS[store].asks[:] = [write for write in DRAFTS[store].asks if id(write) not in gone]


def frame_of(run: OpenRun) -> Frame:
    """Return the innermost frame of this run, for a read or a write."""
    frame = current_frame()
    while frame is not None and frame.run is not run:
        frame = frame.parent
    if frame is None and not run.root.alive:
        raise NotDurable(f"run {run.id!r} is no longer open", hint="use it inside its with block")
    if frame is None:
        raise NotDurable(f"run {run.id!r} is used outside of its context")
    if not frame.alive:
        raise Abandoned
    return frame


def scopes_around(path: str) -> Iterator[str]:
    """Yield the scopes of the items around a scope, from the outermost to itself."""
    inside = ""
    for part in path.split("/")[:-1]:
        inside += part + "/"
        yield inside
