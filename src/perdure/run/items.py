"""`run.each`: a loop that continues at the first item not done, each item a scope of its own."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence, Sized
from typing import Any

from .. import codec
from .. import records as r
from ..failpoints import Site
from ..journal.landing import Wanted
from ..store.base import Statement
from .awaitables import plain
from .core import RunCore
from .obeying import heed
from .requests import Protocol
from .scope import FRAME, Frame, frame_of

END = object()
"""What `advance` returns after the last item."""

_READABLE = re.compile(r"[A-Za-z_][\w-]{0,39}", re.ASCII)

ItemKey = str | Callable[[Any], Any] | None
Loops = str | int | Iterable[str | int]
"""Earlier names of a loop."""


class Loop:
    """One `run.each`: which item is open, and which are done."""

    def __init__(
        self, run: RunCore, items: Iterable[Any], key: ItemKey, name: str, was: Sequence[str | int] = ()
    ) -> None:
        self.run = run
        self._outer = frame_of(run)
        mark = self._outer.mark()
        nth = self._outer.count("\0each", name.encode())
        # A name is made a label too: "1" or "a#2" must not be taken for another loop, nor "/" for an end of a scope.
        again = f"#{nth + 1}" if nth else ""
        label = _label(name, "name") + again if name else str(nth + 1)
        self._prefix = f"{self._outer.path}{label}:"
        self._outer.begin(mark, run.head.seq, self._prefix)
        for old in was:
            label = str(old) if isinstance(old, int) else _label(old, "was") + again
            run.rename_loop(f"{self._outer.path}{label}:", self._prefix)
        self._items = enumerate(items)
        self._total = len(items) if isinstance(items, Sized) else None
        self._key = key
        self._seen: dict[str, int] = {}
        self._item: Frame | None = None
        self._done = 0

    def advance(self) -> Protocol[Any]:
        """Complete the open item and open the next one that is not done."""
        if self._item is not None and self._item.alive:
            yield from finish_item(self._item)
        self.close()
        if self.run.is_told and not self._outer.inside:
            yield from heed(self.run)
        for index, value in self._items:
            if self._outer.inside:
                return value  # inside a step the loop is part of the step, and lands or fails with it
            path = self.path(value, index)
            if self.run.passes_over(path):
                self._skip(path)
                continue
            self._item = self._outer.item(path)
            FRAME.set(self._item)
            self._show(index)
            return value
        self._show(None)
        return END

    def close(self) -> None:
        """Leave the open item, done or not: after `break`, the code is in the enclosing scope again."""
        if self._item is not None:
            if self._item.alive and self._item.buffer is not None:
                self.run.account.lose(self._item.buffer.usage)  # left before it was done: spent all the same
            self._item.alive = False
            if FRAME.get() is self._item:
                FRAME.set(self._outer)
            self._item = None

    def path(self, value: Any, index: int) -> str:
        """The scope of an item, by which it is known when the run is resumed."""
        label = _label(_key_of(value, self._key), f"each[{index}]")
        nth = self._seen.get(label, 0)
        self._seen[label] = nth + 1
        return f"{self._prefix}{label}" + (f".{nth}" if nth else "") + "/"

    def _skip(self, path: str) -> None:
        self.run.pass_item(path)
        for writes in self.run.ledger.landed.get(path, ()):
            self.run.land(self._outer, writes)

    def _show(self, index: int | None) -> None:
        """A line in the terminal, when there is one."""
        if self._total is None or not sys.stderr.isatty():
            return
        done = self._total if index is None else index
        # Ends at the beginning of its line, so that what the body prints goes over it and not behind it.
        end = "\n" if index is None else "\r"
        sys.stderr.write(f"\r\x1b[K{self.run.id}: {done}/{self._total}{end}")
        sys.stderr.flush()


def earlier_loops(was: object) -> tuple[str | int, ...]:
    """What is given as `was=` to a loop: its earlier name, or as the how manieth loop without a name it was known."""
    names = (was,) if isinstance(was, str | int) else was
    if not isinstance(names, Iterable):
        raise TypeError(f"was={was!r}: give the earlier name of the loop, or its number when it had none")
    loops = tuple(names)
    for one in loops:
        if not (isinstance(one, str) and one) and not (type(one) is int and one >= 1):
            raise TypeError(f"was={was!r}: give the earlier name of the loop, or its number, from 1, when it had none")
    return loops


def _key_of(value: Any, key: ItemKey) -> Any:
    """What tells an item from the others: an attribute, an entry, what a callable says, or the item itself."""
    if key is None:
        return value
    if callable(key):
        return plain(key(value), key)
    try:
        return value[key] if isinstance(value, dict) else getattr(value, key)
    except (KeyError, AttributeError) as error:
        raise type(error)(f"run.each(key={key!r}): {value!r} has no {key!r}") from None


def _label(key: Any, path: str) -> str:
    """A key as part of a scope's path: readable where it cannot be mistaken for another, else its digest."""
    if type(key) is int:
        return str(key)
    if type(key) is str and _READABLE.fullmatch(key):
        return key
    return "~" + codec.digest(key, path).hex()[:24]


def finish_item(item: Frame) -> Protocol[None]:
    """The item is done: its own writes land with that."""
    assert item.buffer is not None
    writes = item.buffer.landing()
    done, buffer = r.ItemDone(item.path, writes, (), item.buffer.usage), item.buffer
    yield from item.run.commit(Site.ITEM_DONE, done, objects=buffer.objects, asks=buffer.asks)
    item.alive = False
    item.run.land_item(item, writes)


def finished_with(item: Frame | None) -> tuple[Sequence[r.Record], Sequence[Wanted], Sequence[Statement]]:
    """What lands with the last entry of a run that is one item: entries, writes to the agent, objects."""
    if item is None or item.buffer is None:
        return (), (), ()
    return [r.ItemDone(item.path, item.buffer.landing())], item.buffer.asks, item.buffer.objects


def finish_current_item(run: RunCore) -> Protocol[None]:
    """`run.item_done()`: complete the item now, whatever the rest of its body does."""
    frame: Frame | None = frame_of(run)
    while frame is not None and frame.run is run and (frame.inside or frame.buffer is None):
        frame = frame.parent
    if frame is None or frame.run is not run:
        raise RuntimeError("run.item_done() is called outside of run.each()")
    yield from finish_item(frame)
