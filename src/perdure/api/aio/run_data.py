"""The public API of `run.state` and `run.messages`, the data of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, overload

from perdure.data.state import make_adder
from perdure.errors import WrongType
from perdure.kernel.protocol import drive_async
from perdure.kernel.protocol import drive_sync as block
from perdure.records import WriteOp
from perdure.run.writes import MessageReader, StateReader, append, update, write
from perdure.run.writes import pin as pin_message


class AsyncState(StateReader):
    """`run.state`: a mapping. Reads return copies; a write is durable when it returns.

    >>> run.state["seen"] = run.state.get("seen", 0) + 1
    """

    __slots__ = ()

    async def set(self, key: str, value: Any) -> None:
        """Set one key."""
        await drive_async(self._run.store, write(self._run, WriteOp.SET, key, value, f"state[{key!r}]"))

    async def delete(self, key: str) -> None:
        """Delete a key. Raises KeyError if it does not exist."""
        if key not in self:
            raise KeyError(key)
        await drive_async(self._run.store, write(self._run, WriteOp.DELETE, key, None, f"state[{key!r}]"))

    async def setdefault(self, key: str, default: Any = None) -> Any:
        """Return the value of a key. If it does not exist, set it to `default` first. The value is a copy."""
        if key not in self:
            await self.set(key, default)
        return self[key]

    @overload
    async def update(self, key: str, fn: Callable[[Any], Any]) -> Any: ...

    @overload
    async def update(self, key: Mapping[str, Any] = ..., **values: Any) -> None: ...

    async def update(
        self, key: str | Mapping[str, Any] | None = None, fn: Callable[[Any], Any] | None = None, **values: Any
    ) -> Any:
        """Set a key to `fn(value)` and return the new value. `fn` gets None if the key does not exist.

        With a mapping or keywords, set all of their keys, one after the other. `fn` must not write. In a resumed run it
        must return the recorded value again, or `Diverged` is raised.

        >>> await run.state.update("seen", lambda seen: [*(seen or []), url])
        >>> await run.state.update({"city": "NYC", "nights": 3})
        """
        if fn is None and (isinstance(key, Mapping) or (key is None and values)):
            for name, value in {**(key or {}), **values}.items():
                await self.set(name, value)
            return None
        if not isinstance(key, str) or fn is None or values:
            raise WrongType(
                "update takes a key and a function, or a mapping",
                hint="run.state.update('seen', add_one), or run.state.update({'city': 'NYC'})",
            )
        return await drive_async(self._run.store, update(self._run, key, fn))

    async def incr(self, key: str, by: float = 1) -> Any:
        """Add `by` to a number, starting from 0, and return the sum."""
        return await self.update(key, make_adder(by, "run.state", key))

    def __setitem__(self, key: str, value: Any) -> None:
        # An assignment cannot be awaited: outside a step it blocks for one commit.
        block(self._run.store, write(self._run, WriteOp.SET, key, value, f"state[{key!r}]"))

    def __delitem__(self, key: str) -> None:
        if key not in self:
            raise KeyError(key)
        block(self._run.store, write(self._run, WriteOp.DELETE, key, None, f"state[{key!r}]"))


class AsyncMessages(MessageReader):
    """`run.messages`: the conversation of the run, an append-only sequence that `run.compact` can shorten.

    >>> await run.messages.append({"role": "user", "content": "Book the 9am."}, pin=True)
    """

    __slots__ = ()

    async def append(self, message: Any, *, pin: bool = False) -> None:
        """Append a message. Every context and compaction keeps pinned messages and system messages.

        A message with `"pinned": True` is pinned too.
        """
        await drive_async(self._run.store, append(self._run, message, pin))

    async def extend(self, messages: Iterable[Any]) -> None:
        """Append several messages, one after the other."""
        for message in messages:
            await self.append(message)

    async def pin(self, index: int) -> None:
        """Pin a message: `run.messages.pin(0)`, `run.messages.pin(-1)`."""
        await drive_async(self._run.store, pin_message(self._run, index, True))

    async def unpin(self, index: int) -> None:
        """Unpin a message."""
        await drive_async(self._run.store, pin_message(self._run, index, False))
