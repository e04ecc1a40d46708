"""What lands with the start of a turn: its place in the thread, the user's message, and the state that it sees."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perdure import records as r
from perdure.errors import StoreBusy
from perdure.journal.agent_writes import RequireRevision, SetKey, resolve_writes
from perdure.run.core import RunCore
from perdure.run.ledger import Ledger
from perdure.store.base import Script, Statement, Store

SNAPSHOT = "thread"
"""The key of the recorded value that holds the thread's state at the start of the turn."""


class TurnTaken(StoreBusy):
    """Somebody else has started this turn first: look at the thread again.

    An error of Perdure, so that only its own commit fails and not those that share a transaction with it.
    """


class TurnStart(msgspec.Struct, frozen=True):
    """A turn to start."""

    message: bytes
    """The user's message, packed."""
    snapshot: bytes
    """The thread's state, packed."""
    objects: Sequence[Statement]
    asks: Sequence[SetKey]
    """The turn's number and id in the index of the thread."""
    unchanged: RequireRevision
    """The thread must still be as the number and the state were read from it."""

    def entries(self, store: Store) -> Script[tuple[list[r.Record], list[Statement]]]:
        """Return the entries that follow `RunStarted` in the same commit, decided inside it."""
        changes, made = yield from resolve_writes(store, self.asks, self.unchanged)
        message = r.RunWrite(r.WriteOp.MESSAGE, "", self.message)
        seen = r.RunWrite(r.WriteOp.VALUE, SNAPSHOT, self.snapshot)
        return [r.Wrote("", message, landed=changes), r.Wrote("", seen)], [*self.objects, *made]


def snapshot_in(ledger: Ledger) -> bytes | None:
    """Return the recorded state of the thread at the start of a turn; None for a run that is no turn."""
    recorded = ledger.find_write("", r.WriteOp.VALUE, SNAPSHOT, 0)
    return recorded.value if recorded is not None else None


def consume_start(run: RunCore) -> None:
    """Let the code of a turn see what landed with its start. It is recorded, and not written by the code."""
    message = run.ledger.find_write("", r.WriteOp.MESSAGE, "", 0)
    if message is not None and snapshot_in(run.ledger) is not None:
        run.root.count(f"\0write {r.WriteOp.MESSAGE}", b"")
        run.land(run.root, (message,))
