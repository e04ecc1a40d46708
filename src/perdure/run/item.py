"""`run.each`: a loop that continues at the first item not done, each item a scope of its own."""

from __future__ import annotations

import gc
import itertools
import re
import sys
from collections.abc import Callable, Iterable, Sequence, Sized
from types import CodeType, FrameType
from typing import Any, NamedTuple

from perdure import records as r
from perdure.errors import WrongType, WrongValue
from perdure.journal.agent_writes import AgentWrite
from perdure.kernel.awaitables import require_plain
from perdure.kernel.names import check_storable_name
from perdure.kernel.program_line import format_value
from perdure.kernel.protocol import Protocol
from perdure.kernel.scope import FRAME, Frame, frame_of
from perdure.platform.failpoints import Site
from perdure.run.core import RunCore, core_of
from perdure.run.order_handling import stop_if_ordered
from perdure.store.base import Statement
from perdure.values import codec

END = object()
"""Returned by `advance` after the last item."""

_READABLE = re.compile(r"[A-Za-z_][\w-]{0,39}", re.ASCII)

_CALLS = frozenset({"CALL", "CALL_FUNCTION_EX", "CALL_KW"})
_COUNTERS = (enumerate, zip, itertools.islice, itertools.zip_longest)
"""Iterators whose results depend on the number of items before."""
_COLLECTS = frozenset({"LIST_APPEND", "SET_ADD", "MAP_ADD"})
_AWAITING = ("SEND", "YIELD_VALUE", "RESUME", "JUMP_BACKWARD_NO_INTERRUPT", "END_SEND")
_TAKING = ("STORE_FAST", "LOAD_FAST", "LOAD_CONST", "LOAD_ATTR", "UNPACK_SEQUENCE", "BUILD_TUPLE", "BINARY_SUBSCR")
_PASSING = ("CACHE", "NOP", "NOT_TAKEN", "EXTENDED_ARG", *_AWAITING, *_TAKING)
"""Instructions between a loop of a comprehension and the result that it adds, if it calls nothing."""

ItemKey = str | Callable[[Any], Any] | None
EarlierLoopNames = str | int | Iterable[str | int]
"""Earlier names of a loop."""


class ItemLoop:
    """One `run.each`: which item is open, and which are done."""

    def __init__(
        self,
        run: RunCore,
        items: Iterable[Any],
        key: ItemKey,
        name: str,
        was: Sequence[str | int] = (),
        index: bool = False,
    ) -> None:
        self.run = run
        self._items = enumerate(iterable(items))
        self._outer = frame_of(run)
        mark = self._outer.mark()
        nth = self._outer.count("\0each", check_storable_name(name, "the name of a loop").encode())
        # A name becomes a label too: "1" or "a#2" must not collide with another loop, nor "/" end a scope.
        again = f"#{nth + 1}" if nth else ""
        label = _label(name, "name") + again if name else str(nth + 1)
        self._prefix = f"{self._outer.path}{label}:"
        self._outer.begin(mark, run.head.seq, self._prefix)
        for old in was:
            label = str(old) if isinstance(old, int) else _label(old, "was") + again
            run.rename_loop(f"{self._outer.path}{label}:", self._prefix)
        self._total = len(items) if isinstance(items, Sized) else None
        self._key = key
        self._index = index
        self._seen: dict[str, int] = {}
        self._item: Frame | None = None
        self._done = 0

    @property
    def inside(self) -> bool:
        """Whether the loop is in a step or an effect."""
        return bool(self._outer.inside)

    def finish(self) -> Protocol[Sequence[r.RunWrite]]:
        """Complete the open item, if there is one; returns what landed with it."""
        writes: Sequence[r.RunWrite] = ()
        if self._item is not None and self._item.alive:
            writes = yield from finish_item(self._item)
        self.close()
        return writes

    def advance(self) -> Protocol[Any]:
        """Open the next item that is not done."""
        if self.run.has_orders and not self._outer.inside:
            yield from stop_if_ordered(self.run)
        for index, value in self._items:
            if self._outer.inside:
                return self._show_item(index, value)  # inside a step, the loop lands or fails with the step
            path = self.path(value, index)
            if self.run.is_item_done(path):
                self._skip(path)
                continue
            self._item = self._outer.item(path)
            FRAME.set(self._item)
            self._show(index)
            return self._show_item(index, value)
        self._show(None)
        return END

    def close(self) -> None:
        """Leave the open item, done or not: after `break`, the code is in the enclosing scope again."""
        if self._item is not None:
            if self._item.alive and self._item.buffer is not None:
                self.run.account.record_lost(self._item.buffer.usage)  # spent, though the item is not done
            self._item.alive = False
            if FRAME.get() is self._item:
                FRAME.set(self._outer)
            self._item = None

    def path(self, value: Any, index: int) -> str:
        """Return the scope of an item, which identifies it when the run is resumed."""
        label = _label(_key_of(value, self._key), f"each[{index}]")
        nth = self._seen.get(label, 0)
        self._seen[label] = nth + 1
        return f"{self._prefix}{label}" + (f".{nth}" if nth else "") + "/"

    def _show_item(self, index: int, value: Any) -> Any:
        return (index, value) if self._index else value

    def _skip(self, path: str) -> None:
        self.run.skip_item(path)
        for writes in self.run.ledger.landed.get(path, ()):
            self.run.land(self._outer, writes)

    def _show(self, index: int | None) -> None:
        """Show progress, if stderr is a terminal."""
        if self._total is None or not sys.stderr.isatty():
            return
        done = self._total if index is None else index
        # The cursor ends at the start of the line, so that output of the body overwrites it.
        end = "\n" if index is None else "\r"
        sys.stderr.write(f"\r\x1b[K{self.run.id}: {done}/{self._total}{end}")
        sys.stderr.flush()


class LoopStart(NamedTuple):
    """The instruction of the program that asked a loop for an iterator."""

    frame: int
    code: CodeType
    offset: int


def loop_start() -> LoopStart:
    """Return the instruction of the caller's caller."""
    frame = sys._getframe(2)  # beyond the method that was asked for an iterator
    return LoopStart(id(frame), frame.f_code, frame.f_lasti)


def refuse_misuse(iterator: object, loop: ItemLoop, start: LoopStart) -> None:
    """Refuse, before the first item, what takes all items before the body runs, and what counts them.

    Inside of a step both are harmless: the whole loop lands or fails with the step.
    """
    if loop.inside:
        return
    caller = sys._getframe(2)
    here = LoopStart(id(caller), caller.f_code, caller.f_lasti)
    # A loop statement asks for the iterator in one instruction, and for each item in another one.
    if here == start or _only_collects(caller):
        raise WrongType(
            "this takes all items of run.each(...) at once: each would count as done before any work on it is done",
            hint="do the work in the loop: `for item in run.each(items): ...`",
        )
    from opcode import opname

    if opname[start.code.co_code[start.offset]] in _CALLS:
        _refuse_counting(iterator)


def _only_collects(caller: FrameType) -> bool:
    """Return whether the instruction is the loop of a comprehension that calls nothing: `[x for x in run.each(xs)]`."""
    from opcode import opname

    code = caller.f_code.co_code
    names = (opname[code[at]] for at in range(caller.f_lasti + 2, len(code), 2))
    return next((name for name in names if not name.startswith(_PASSING)), "") in _COLLECTS


def _refuse_counting(iterator: object) -> None:
    """Refuse `enumerate(run.each(...))` and `zip`: after a resume they would count from the first unfinished item."""
    holders = gc.get_referrers(iterator)
    holders += [holder for one in holders if type(one) is tuple for holder in gc.get_referrers(one)]
    for holder in holders:
        if isinstance(holder, _COUNTERS):
            raise WrongType(
                f"{type(holder).__name__}(run.each(...)) would count from the first unfinished item after a resume",
                hint="use `for index, item in run.each(items, index=True)`",
            )


def iterable(items: Any) -> Iterable[Any]:
    """Return what was given as the items of a loop, if it can be looped over."""
    if isinstance(items, Iterable):
        return items
    hint = f"for a number of times, give range({items})" if type(items) is int else "give a list of items"
    raise WrongType(f"items={format_value(items)}: {type(items).__name__} cannot be looped over", hint=hint)


def check_earlier_loops(was: object) -> tuple[str | int, ...]:
    """Validate `was=` of a loop: its earlier names, or its number if it had no name."""
    names = (was,) if isinstance(was, str | int) else was
    if not isinstance(names, Iterable):
        raise WrongType(f"was={was!r}: pass the earlier name of the loop, or its number if it had none")
    loops = tuple(names)
    for one in loops:
        if not (isinstance(one, str) and one) and not (type(one) is int and one >= 1):
            raise WrongType(f"was={was!r}: pass the earlier name of the loop, or its number, from 1, if it had none")
    return loops


def scope_path(loops: Sequence[tuple[str | int, Any, int]]) -> str:
    """Return the scope of an item: for each loop around it, its name or number, the item's key, and its count."""
    path = ""
    for name, key, nth in loops:
        label = str(name) if isinstance(name, int) else _label(name, "scope")
        path += f"{label}:{_label(key, 'scope')}" + (f".{nth}" if nth else "") + "/"
    return path


def _key_of(value: Any, key: ItemKey) -> Any:
    """Return the key of an item: an attribute, a dict entry, the result of a callable, or the item itself."""
    if key is None:
        return value
    if callable(key):
        return require_plain(key(value), key)
    try:
        return value[key] if isinstance(value, dict) else getattr(value, key)
    except (KeyError, AttributeError):
        raise WrongValue(f"run.each(key={key!r}): {format_value(value)} has no {key!r}") from None


def _label(key: Any, path: str) -> str:
    """Return a key as a label in a scope: readable if it is unambiguous, else its digest."""
    if type(key) is int:
        return str(key)
    if type(key) is str and _READABLE.fullmatch(key):
        return key
    return "~" + codec.digest(key, path).hex()[:24]


def finish_item(item: Frame) -> Protocol[Sequence[r.RunWrite]]:
    """Commit the end of an item with its writes, and return them."""
    assert item.buffer is not None
    writes = item.buffer.landing_writes()
    done, buffer = r.ItemDone(item.path, writes, (), item.buffer.usage), item.buffer
    run = core_of(item)
    yield from run.commit(Site.ITEM_DONE, done, objects=buffer.objects, asks=buffer.asks)
    item.alive = False
    run.land_item(item, writes)
    return writes


def collect_final_writes(item: Frame | None) -> tuple[Sequence[r.Record], Sequence[AgentWrite], Sequence[Statement]]:
    """Return what lands with the last entry of a run that is one item: entries, agent writes, objects."""
    if item is None or item.buffer is None:
        return (), (), ()
    done = r.ItemDone(item.path, item.buffer.landing_writes(), (), item.buffer.usage)
    return [done], item.buffer.asks, item.buffer.objects


def finish_current_item(run: RunCore) -> Protocol[Sequence[r.RunWrite]]:
    """`run.item_done()`: complete the item now, whatever the rest of its body does."""
    frame: Frame | None = frame_of(run)
    while frame is not None and frame.run is run and (frame.inside or frame.buffer is None):
        frame = frame.parent
    if frame is None or frame.run is not run:
        raise RuntimeError("run.item_done() is called outside of run.each()")
    return (yield from finish_item(frame))
