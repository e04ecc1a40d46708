"""What a store is to the layers above: it commits units of work and answers named queries.

A unit of work is a script: a generator that yields lists of statements and gets their rows. It holds protocol,
never I/O, so SQLite, PostgreSQL and a simulator drive the same one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from ..clock import Clock
from ..errors import PerdureError
from ..failpoints import Site

T = TypeVar("T")
Rows = list[tuple[Any, ...]]


class Statement(msgspec.Struct, frozen=True, gc=False):
    """A named statement with its arguments. With `must`, changing anything but one row raises that error."""

    name: str
    args: tuple[Any, ...] = ()
    must: type[PerdureError] | None = None


Script = Generator[Sequence[Statement], list[Rows], T]


class Unit(Generic[T]):
    """One commit: what it does inside the transaction, and what it learns afterwards."""

    site: Site

    def script(self) -> Script[T]:
        """Runs inside the transaction; raising undoes this unit and leaves its neighbours alone."""
        raise NotImplementedError

    def settle(self, committed: bool) -> None:
        """Called once the transaction has ended, before the caller goes on."""


class Store(ABC):
    """A place where everything lives. One per process and file or database."""

    url: str
    clock: Clock
    secret: bytes
    """Keys the ids of objects."""
    identity: str
    """Names the store in seals, so that a seal of one store proves nothing about another."""

    @abstractmethod
    def submit(self, unit: Unit[T]) -> T:
        """Commit from a plain thread. When it returns, the unit is durable."""

    @abstractmethod
    async def submit_async(self, unit: Unit[T]) -> T:
        """Commit from an event loop, which goes on meanwhile. A cancelled caller still waits for the commit."""

    @abstractmethod
    def read(self, name: str, args: tuple[Any, ...] = ()) -> Rows:
        """Run a named query outside of any transaction of ours, seeing everything committed so far."""

    @abstractmethod
    def changes(self) -> int:
        """A number that moves when another process has committed; cheap enough to poll."""

    @abstractmethod
    def backup(self, path: str, progress: Callable[[int, int], None] | None = None) -> int:
        """Copy the store, as of one moment and while it is in use; returns the bytes written.

        `progress` is told now and then how much is done, and of how much.
        """

    @abstractmethod
    def close(self) -> None:
        """Give everything back. Calling it twice is fine."""
