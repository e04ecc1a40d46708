"""`run.state` and `run.messages`: what a run has of its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..records import Op
from ..run.requests import drive_async
from ..run.requests import drive_sync as block
from ..run.writes import MessageReader, StateReader, write


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
    """`run.messages`: a sequence that only grows."""

    async def append(self, message: Any) -> None:
        """Add one message."""
        await drive_async(self._run.store, write(self._run, Op.MESSAGE, "", message, "message"))

    async def extend(self, messages: Iterable[Any]) -> None:
        """Add several, one after the other."""
        for message in messages:
            await self.append(message)
