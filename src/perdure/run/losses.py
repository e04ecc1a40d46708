"""Effects of a run whose entries the store has lost: they may have happened, and are in doubt. See `perdure adopt`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .. import records as r
from ..house_records import Lost, LostIntent
from ..process import Holder
from ..store.sqlite_mark import call_digest

if TYPE_CHECKING:
    from .ledger import Recorded

RECORD, KEY = "record", "key"
"""What was lost of an effect: its entry, or the key that it was given as well."""


class Losses:
    """What the journal of a run says about entries that it has lost."""

    def __init__(self) -> None:
        self._intents: dict[bytes, LostIntent] = {}
        """By digest of the call: those that the code has not come to since."""
        self._holders: dict[str, Holder] = {}
        self._complete = True

    def add(self, lost: Lost) -> None:
        """Entries were lost, once more."""
        self._intents |= {intent.call: intent for intent in lost.intents if intent.call}
        self._holders |= {intent.key: intent.holder for intent in lost.intents if intent.key}
        self._complete = self._complete and lost.complete

    def about(self, names: Sequence[str], call: r.Call, secret: bytes) -> tuple[str, str]:
        """What was lost of a call that has no record, and its key. Nothing was lost of one that had not begun."""
        found = self._intents.get(call_digest(secret, call))
        if found is not None:
            return RECORD, found.key
        if not self._complete or any(intent.name in names for intent in self._intents.values()):
            return KEY, ""
        return "", ""

    def recorded(self, key: str) -> Holder | None:
        """An intent has an entry again; returns the process that ran its body."""
        self._intents = {call: intent for call, intent in self._intents.items() if intent.key != key}
        return self._holders.get(key)


def lose(losses: Losses | None, lost: Lost, by_intent: Mapping[int, Recorded]) -> Losses:
    """An entry says what was lost before it."""
    losses = losses or Losses()
    losses.add(lost)
    for intent in lost.intents:
        recorded = by_intent.get(intent.again)
        if recorded is not None and not recorded.done:  # it had begun again: it is in doubt, as after a crash
            recorded.failed, recorded.fence, recorded.holder = 0, recorded.fence or 1, intent.holder
    return losses
