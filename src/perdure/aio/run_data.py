"""`run.state` and `run.messages`: what a run has of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, overload

from ..records import Op
from ..run.requests import drive_async
from ..run.requests import drive_sync as block
from ..run.writes import MessageReader, StateReader, append, update, write
from ..run.writes import pin as pin_message
from ..state import adding


class AsyncState(StateReader):
    """`run.state`: a mapping. Reading gives copies; setting is durable when it returns.

    >>> run.state["seen"] = run.state.get("seen", 0) + 1
    """

    async def set(self, key: str, value: Any) -> None:
        """Set one key."""
        await drive_async(self._run.store, write(self._run, Op.SET, key, value, f"state[{key!r}]"))

    async def delete(self, key: str) -> None:
        """Remove one key; KeyError when it is not there."""
        if key not in self:
            raise KeyError(key)
        await drive_async(self._run.store, write(self._run, Op.DELETE, key, None, f"state[{key!r}]"))

    @overload
    async def update(self, key: str, fn: Callable[[Any], Any]) -> Any: ...

    @overload
    async def update(self, key: Mapping[str, Any]) -> None: ...

    async def update(self, key: str | Mapping[str, Any], fn: Callable[[Any], Any] | None = None) -> Any:
        """Set a key to what `fn` makes of its value (None when it is not there), and return that.

        With a mapping alone, set all of its keys, one after the other. When the run is resumed, the value that was
        written the first time stays, as with every write. `fn` cannot write.

        >>> await run.state.update("seen", lambda seen: [*(seen or []), url])
        >>> await run.state.update({"city": "NYC", "nights": 3})
        """
        if isinstance(key, Mapping) and fn is None:
            for name, value in key.items():
                await self.set(name, value)
            return None
        if isinstance(key, Mapping) or fn is None:
            raise TypeError("update takes a key and a function, or a mapping alone")
        return await drive_async(self._run.store, update(self._run, key, fn))

    async def incr(self, key: str, by: float = 1) -> Any:
        """Add to a number, from 0, and return it."""
        return await self.update(key, adding(by, "run.state", key))

    def __setitem__(self, key: str, value: Any) -> None:
        # An assignment cannot be awaited: in the open it blocks for one commit.
        block(self._run.store, write(self._run, Op.SET, key, value, f"state[{key!r}]"))

    def __delitem__(self, key: str) -> None:
        if key not in self:
            raise KeyError(key)
        block(self._run.store, write(self._run, Op.DELETE, key, None, f"state[{key!r}]"))


class AsyncMessages(MessageReader):
    """`run.messages`: a sequence that only grows, unless it is compacted.

    >>> await run.messages.append({"role": "user", "content": "Book the 9am."}, pin=True)
    """

    async def append(self, message: Any, *, pin: bool = False) -> None:
        """Add one message. A pinned one stays in every context and compaction, and so do system messages.

        `{"role": "user", "content": "...", "pinned": True}` is pinned too.
        """
        await drive_async(self._run.store, append(self._run, message, pin))

    async def extend(self, messages: Iterable[Any]) -> None:
        """Add several, one after the other."""
        for message in messages:
            await self.append(message)

    async def pin(self, index: int) -> None:
        """Pin a message: `run.messages.pin(0)`, `run.messages.pin(-1)`."""
        await drive_async(self._run.store, pin_message(self._run, index, True))

    async def unpin(self, index: int) -> None:
        """Let it go with the others."""
        await drive_async(self._run.store, pin_message(self._run, index, False))
