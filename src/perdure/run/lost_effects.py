"""Effects whose entries the store has lost: they may have happened, so they are in doubt. See `perdure adopt`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from perdure import records as r
from perdure.platform.process import Holder
from perdure.records.stores import EntriesLost, LostIntent
from perdure.store.sqlite.mark import call_digest

if TYPE_CHECKING:
    from perdure.run.ledger import RecordedCall

RECORD, KEY = "record", "key"
"""What was lost of an effect: its entry, or also its key."""


class LostRunEntries:
    """The known facts about the lost entries of a run."""

    def __init__(self) -> None:
        self._intents: dict[bytes, LostIntent] = {}
        """By digest of the call: lost intents that the code has not reached since."""
        self._holders: dict[str, Holder] = {}
        self._complete = True

    def add(self, lost: EntriesLost) -> None:
        """Add a report of lost entries."""
        self._intents |= {intent.call: intent for intent in lost.intents if intent.call}
        self._holders |= {intent.key: intent.holder for intent in lost.intents if intent.key}
        self._complete = self._complete and lost.complete

    def find_lost_call(self, names: Sequence[str], call: r.CallIdentity, secret: bytes) -> tuple[str, str]:
        """Return what was lost of an unrecorded call, and its key. Both are "" if the call had not started."""
        found = self._intents.get(call_digest(secret, call))
        if found is not None:
            return RECORD, found.key
        if not self._complete or any(intent.name in names for intent in self._intents.values()):
            return KEY, ""
        return "", ""

    def mark_recorded(self, key: str) -> Holder | None:
        """Mark an intent as recorded again, and return the process that ran its body."""
        self._intents = {call: intent for call, intent in self._intents.items() if intent.key != key}
        return self._holders.get(key)


def lose(losses: LostRunEntries | None, lost: EntriesLost, by_intent: Mapping[int, RecordedCall]) -> LostRunEntries:
    """Apply a report of lost entries to the ledger."""
    losses = losses or LostRunEntries()
    losses.add(lost)
    for intent in lost.intents:
        recorded = by_intent.get(intent.again)
        if recorded is not None and not recorded.done:  # it had started again, so it is in doubt, as after a crash
            recorded.failed, recorded.fence, recorded.holder = 0, recorded.fence or 1, intent.holder
    return losses
