"""Steps that failed because their results could not be stored. They were paid for, so they stay failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure import records as r

if TYPE_CHECKING:
    from perdure.run.function import CallOptions
    from perdure.run.ledger import Ledger, RecordedCall


def unstorable_calls(ledger: Ledger) -> list[RecordedCall]:
    """Return every step that stays failed because its result could not be stored."""
    calls = (recorded for calls in ledger.calls.values() for recorded in calls)
    return [recorded for recorded in calls if recorded.unstorable is not None and not recorded.done]


def release(ledger: Ledger, event: r.JournalEntry, record: r.RunReleased) -> None:
    """Let them run again, if a person has asked for it."""
    if record.retry:
        for recorded in unstorable_calls(ledger):
            ledger.causes.add(recorded.failed)
            recorded.unstorable = None


def stays_failed(ledger: Ledger, recorded: RecordedCall, options: CallOptions) -> bool:
    """Return whether the recorded failure of a step is raised again."""
    if recorded.unstorable is None or ledger.finished is not None:
        return ledger.has_continued_after(recorded)
    if recorded.unstorable != options.version:
        return False
    return not options.retry_unstorable or ledger.has_continued_after(recorded)
