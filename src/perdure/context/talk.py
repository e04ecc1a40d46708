"""A conversation: its messages, looked at once each, and which of them belong together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ..locks import lock
from ..run.spoken import Speech, Spoken
from ..tokens import Tokens
from .heard import Heard
from .masking import MESSAGE_TOKENS, size_exactly
from .refs import ref_to
from .said import Result, Said, said
from .shapes import NO_RESULT
from .window import Window

WINDOWS_KEPT = 4
"""A budget that was asked for again goes on where it was; of those that were not for long, nothing is known."""


def headed(messages: int, ref: str) -> str:
    """The first line of a summary."""
    return f"[Earlier in this conversation, {messages} messages, summarised; open {ref}]"


class Unit(msgspec.Struct):
    """Messages that are shown together, or not at all: a call of tools with its results, or one message."""

    messages: list[int]
    role: str
    pinned: bool
    stands_for: int = 0
    """The tokens of a message that stands for others, which were compacted."""


class Talk:
    """The messages of a run, as far as they were looked at. It only grows, unless the run went back."""

    def __init__(self, run: str, count: Tokens, unpack: Callable[[bytes], Any]) -> None:
        self.count = count
        self.heard: list[Heard] = []
        self.units: list[Unit] = []
        self.unit_of: list[int] = []
        self.run = run
        self.tokens = 0
        """Of all messages; of long ones about."""
        self._unpack = unpack
        self._head = MESSAGE_TOKENS + count(headed(10**6, ref_to(run, 10**6, 10**7)))
        self._owed = size_exactly(Said("user", (Result("", NO_RESULT),)), count)
        self._speech: Speech | None = None
        self._known: dict[Spoken, Heard] = {}
        self._caller: dict[str, int] = {}
        """The unit of each call whose result may come."""
        self._open: set[str] = set()
        """Calls whose results have not come so far: they get one that says so."""
        self._windows: dict[int, Window] = {}
        self.lock = lock()
        """Threads and tasks of one run may ask at once."""

    @property
    def wanted(self) -> int:
        """What it takes when all of it is shown, about."""
        return self.tokens + self._owed * len(self._open)

    def load(self, item: Spoken) -> Said:
        """A message, read again."""
        return said(self._unpack(item.value))

    def last_words(self) -> str:
        """What the user said last."""
        words = (one for one in reversed(self.heard) if one.role == "user" and not one.results and not one.item.covers)
        last = next(words, None)
        return last.read(self.load).text if last is not None else ""

    def hear(self, speech: Speech) -> None:
        """Take in what there is now: mostly a few messages more than the last time."""
        if self._speech is not None and speech.follows(self._speech):
            spoken = speech.shown(len(self._speech.messages))
        else:
            self._forget()
            spoken = speech.shown()
        for item in spoken:
            self._add(self._known.get(item) or self._look(item))
        self._speech = speech

    def window(self, room: int) -> Window:
        """What is shown within so many tokens."""
        window = self._windows.pop(room, None) or Window(room, self._head, self._owed)
        self._windows[room] = window
        while len(self._windows) > WINDOWS_KEPT:
            del self._windows[next(iter(self._windows))]
        window.follow(self)
        return window

    def _look(self, item: Spoken) -> Heard:
        it = self.load(item)
        ref = ref_to(self.run, *(item.covers or (item.position,)))
        self._known[item] = heard = Heard(item, it, ref, self.count)
        return heard

    def _add(self, one: Heard) -> None:
        index = len(self.heard)
        self.heard.append(one)
        self.tokens += one.tokens
        unit = next((self._caller[ident] for ident in one.results if ident in self._caller), None)
        if unit is None or one.role == "assistant":
            unit = len(self.units)
            self.units.append(Unit([], one.role, False, one.tokens if one.item.covers is not None else 0))
        self.unit_of.append(unit)
        self.units[unit].messages.append(index)
        if one.pinned and not self.units[unit].pinned:
            self.units[unit].pinned = True
            if len(self.units[unit].messages) > 1:
                self._windows.clear()  # what it belongs to is pinned too, and was not until now
        self._caller.update(dict.fromkeys(one.calls, unit))
        self._open.update(one.calls)
        self._open.difference_update(one.results)

    def _forget(self) -> None:
        """Begin anew; what was counted is still known."""
        self.heard, self.units, self.unit_of, self.tokens = [], [], [], 0
        self._caller.clear()
        self._open.clear()
        self._windows.clear()
