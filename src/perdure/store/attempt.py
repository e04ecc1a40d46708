"""One attempt to commit a unit on a server: its script, and what is known of its outcome."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from perdure.store.base import CommitProof, Rows, Script, Statement, UnitOfWork

T = TypeVar("T")


class CommitAttempt(Generic[T]):
    """The progress of one attempt."""

    __slots__ = ("committing", "ended", "first", "proof", "result", "script")

    def __init__(self, unit: UnitOfWork[T]) -> None:
        self.script: Script[T] = unit.script()
        self.first: Sequence[Statement] | None = None
        """The first batch, if the script was started before the transaction."""
        self.committing = False
        """The commit has been sent: from here on, a lost answer leaves the outcome unknown."""
        self.proof: CommitProof | None = None
        self.ended = False
        self.result: Any = None

    def go_on(self, rows: list[Rows] | None) -> Sequence[Statement]:
        """Return the next batch; empty if the script has ended."""
        try:
            return next(self.script) if rows is None else self.script.send(rows)
        except StopIteration as stop:
            self.ended, self.result = True, stop.value
            return ()

    def start(self) -> Sequence[Statement]:
        """Return the first batch."""
        if self.first is None:
            self.first = self.go_on(None)
        return self.first

    def finish(self, rows: list[Rows]) -> T:
        """Let the script do its bookkeeping after the commit."""
        if not self.ended:
            self.go_on(rows)
            assert self.ended, "nothing may follow the last batch of a script"
        result: T = self.result
        return result
