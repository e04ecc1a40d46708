"""The measured messages of a conversation, grouped into turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from perdure.presence.context.mask import MESSAGE_TOKENS, size_exactly
from perdure.presence.context.measure import MeasuredMessage
from perdure.presence.context.parse import ParsedMessage, ToolResultPart, parse_message
from perdure.presence.context.provider_formats import NO_RESULT
from perdure.presence.context.refs import ref_to
from perdure.presence.context.window import ContextWindow
from perdure.run.conversation import Conversation, StoredMessage
from perdure.values.locks import lock
from perdure.values.tokens import TokenCounter

WINDOWS_KEPT = 4
"""How many windows are cached, by budget; the least recently used are dropped."""


def make_heading(messages: int, ref: str) -> str:
    """Return the first line of a summary."""
    return f"[Earlier in this conversation, {messages} messages, summarised; open {ref}]"


class MessageGroup(msgspec.Struct):
    """Messages that are shown together or not at all: a tool call with its results, or a single message."""

    messages: list[int]
    role: str
    pinned: bool
    stands_for: int = 0
    """The tokens of a message that replaces compacted ones."""


class Turns:
    """The measured messages of a run. It only grows, unless the run was rewound."""

    def __init__(self, run: str, count: TokenCounter, unpack: Callable[[bytes], Any]) -> None:
        self.count = count
        self.heard: list[MeasuredMessage] = []
        self.units: list[MessageGroup] = []
        self.unit_of: list[int] = []
        self.run = run
        self.tokens = 0
        """Estimated tokens of all messages."""
        self._unpack = unpack
        self._head = MESSAGE_TOKENS + count(make_heading(10**6, ref_to(run, 10**6, 10**7)))
        self._owed = size_exactly(ParsedMessage("user", (ToolResultPart("", NO_RESULT),)), count)
        self._speech: Conversation | None = None
        self._known: dict[StoredMessage, MeasuredMessage] = {}
        self._caller: dict[str, int] = {}
        """The group of each call whose result may still come."""
        self._open: set[str] = set()
        """Calls without a result so far; they get a placeholder."""
        self._windows: dict[int, ContextWindow] = {}
        self.lock = lock()
        """Threads and tasks of one run may use it concurrently."""

    @property
    def wanted(self) -> int:
        """Estimated tokens to show everything."""
        return self.tokens + self._owed * len(self._open)

    def load(self, item: StoredMessage) -> ParsedMessage:
        """Read a message again."""
        return parse_message(self._unpack(item.value))

    def last_user_text(self) -> str:
        """Return the last user message."""
        words = (one for one in reversed(self.heard) if one.role == "user" and not one.results and not one.item.covers)
        last = next(words, None)
        return last.load_message(self.load).text if last is not None else ""

    def update(self, speech: Conversation) -> None:
        """Add new messages: mostly a few since the last time."""
        if self._speech is not None and speech.is_continuation_of(self._speech):
            spoken = speech.list_visible(len(self._speech.messages))
        else:
            self._forget()
            spoken = speech.list_visible()
        for item in spoken:
            self._add(self._known.get(item) or self._look(item))
        self._speech = speech

    def window(self, room: int) -> ContextWindow:
        """Return the window of a given size."""
        window = self._windows.pop(room, None) or ContextWindow(room, self._head, self._owed)
        self._windows[room] = window
        while len(self._windows) > WINDOWS_KEPT:
            del self._windows[next(iter(self._windows))]
        window.extend(self)
        return window

    def _look(self, item: StoredMessage) -> MeasuredMessage:
        message = self.load(item)
        ref = ref_to(self.run, *(item.covers or (item.position,)))
        self._known[item] = heard = MeasuredMessage(item, message, ref, self.count)
        return heard

    def _add(self, one: MeasuredMessage) -> None:
        index = len(self.heard)
        self.heard.append(one)
        self.tokens += one.tokens
        unit = next((self._caller[ident] for ident in one.results if ident in self._caller), None)
        if unit is None or one.role == "assistant":
            unit = len(self.units)
            self.units.append(MessageGroup([], one.role, False, one.tokens if one.item.covers is not None else 0))
        self.unit_of.append(unit)
        self.units[unit].messages.append(index)
        if one.pinned and not self.units[unit].pinned:
            self.units[unit].pinned = True
            if len(self.units[unit].messages) > 1:
                self._windows.clear()  # the rest of the group is pinned now too
        self._caller.update(dict.fromkeys(one.calls, unit))
        self._open.update(one.calls)
        self._open.difference_update(one.results)

    def _forget(self) -> None:
        """Start over, keeping the measurements."""
        self.heard, self.units, self.unit_of, self.tokens = [], [], [], 0
        self._caller.clear()
        self._open.clear()
        self._windows.clear()


class RunTurns:
    """The measured conversation of an open run, kept between contexts."""

    turns: Turns | None = None
