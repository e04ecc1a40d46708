"""What `run.each` returns: an object that is looped over, and the iterator of one loop."""

from __future__ import annotations

from typing import Generic, TypeVar

from perdure.kernel.protocol import drive_async
from perdure.presence.workspace.open_folder import next_item
from perdure.run.item import END, ItemLoop, is_handed_on, refuse_counting

R = TypeVar("R")


class AsyncEach(Generic[R]):
    """What `run.each` returns."""

    def __init__(self, loop: ItemLoop) -> None:
        self._loop = loop

    def __aiter__(self) -> _AsyncItemIterator[R]:
        # A separate object that only the loop statement holds: a variable or a traceback may keep this one alive.
        return _AsyncItemIterator(self._loop, is_handed_on())


class _AsyncItemIterator(Generic[R]):
    """The iterator of one loop."""

    def __init__(self, loop: ItemLoop, handed_on: bool) -> None:
        self._loop = loop
        self._unchecked = handed_on

    def __aiter__(self) -> _AsyncItemIterator[R]:
        return self

    async def __anext__(self) -> R:
        if self._unchecked:
            refuse_counting(self)
            self._unchecked = False
        value = await drive_async(self._loop.run.store, next_item(self._loop))
        if value is END:
            raise StopAsyncIteration
        item: R = value
        return item

    def __del__(self) -> None:
        # `break`, `return` and exceptions drop the iterator at once: the code has left the item.
        self._loop.close()
