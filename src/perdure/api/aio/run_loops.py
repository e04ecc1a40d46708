"""What `run.each` returns: an object that is looped over, and the iterator of one loop."""

from __future__ import annotations

from typing import Generic, TypeVar

from perdure.kernel.protocol import drive_async
from perdure.presence.workspace.open_folder import next_item
from perdure.run.item import END, ItemLoop, LoopStart, loop_start, refuse_misuse

R = TypeVar("R")


class AsyncEach(Generic[R]):
    """What `run.each` returns."""

    def __init__(self, loop: ItemLoop) -> None:
        self._loop = loop

    def __aiter__(self) -> _AsyncItemIterator[R]:
        # A separate object that only the loop statement holds: a variable or a traceback may keep this one alive.
        return _AsyncItemIterator(self._loop, loop_start())


class _AsyncItemIterator(Generic[R]):
    """The iterator of one loop."""

    def __init__(self, loop: ItemLoop, start: LoopStart) -> None:
        self._loop = loop
        self._start: LoopStart | None = start  # None once it is checked

    def __aiter__(self) -> _AsyncItemIterator[R]:
        return self

    async def __anext__(self) -> R:
        if self._start is not None:
            refuse_misuse(self, self._loop, self._start)
            self._start = None
        value = await drive_async(self._loop.run.store, next_item(self._loop))
        if value is END:
            raise StopAsyncIteration
        item: R = value
        return item

    def __del__(self) -> None:
        # `break`, `return` and exceptions drop the iterator at once: the code has left the item.
        self._loop.close()
