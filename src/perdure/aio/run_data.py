"""`run.state` and `run.messages`: what a run has of its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..records import Op
from ..run.requests import drive_async
from ..run.requests import drive_sync as block
from ..run.writes import MessageReader, StateReader, append, write
from ..run.writes import pin as pin_message


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

    async def incr(self, key: str, by: float = 1) -> Any:
        """Add to a number, from 0, and return it."""
        value = self.get(key, 0) + by
        await self.set(key, value)
        return value

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
