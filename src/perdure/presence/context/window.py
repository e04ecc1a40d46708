"""Decides which messages of a conversation are shown and how: whole, shortened, or in a summary.

It follows the conversation message by message and depends on nothing else, so another process decides the same after a
crash. A new message is shown whole, up to a limit. When the window is full there is a *step*: older tool results are
masked and still older turns go into the summary, until only a part of the window is used. Between two steps nothing
that was shown changes, so provider prompt caches hit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from perdure.presence.context.measure import MeasuredMessage
    from perdure.presence.context.turns import MessageGroup, Turns

T = TypeVar("T")

FULL = 0.55
"""The share of the window in use after a step; the rest fills up before the next one."""

RECENT, RECENT_LEAST = 12, 3
"""How many groups at the end a step does not mask; and the minimum if there is no room for them."""

LARGE = 4
"""A message up to a fourth of the window is shown whole, if necessary after a step."""

SHARE_OF_FREE, SHARE_OF_ROOM = 4, 12
"""A larger message is shown whole while there is room; else in a fourth of what is free, or a twelfth of the window."""

SUMMARY = 10
"""A tenth of the window is for the summary, once there is one."""


class ContextWindow:
    """The state of a window of one size."""

    def __init__(self, room: int, head: int, owed: int) -> None:
        self.room = room
        self._head = head
        """Tokens of a summary that only points to the messages."""
        self._each = owed
        """Tokens of the placeholder for a missing result."""
        self._owed: dict[int, int] = {}
        """By shown group, the number of calls without a result so far: each needs a placeholder."""
        self.steps = 0
        self.cut = 0
        """Groups before this one are in the summary, unless they are pinned."""
        self.mask = 0
        """Groups before this one are masked, unless they are pinned."""
        self.sizes: list[int] = []
        """Maximum tokens of each message."""
        self._cost = 0
        self.kept: list[int] = []
        """Groups before the cut that stay."""
        self._told: tuple[tuple[int, int], Any] | None = None
        self._late = 0
        self._last = -1
        """The latest group that it has seen. Later ones must not influence its decisions."""

    @property
    def summary(self) -> int:
        """Maximum tokens of the summary."""
        return max(self.room // SUMMARY, self._head) if self.cut else 0

    @property
    def cost(self) -> int:
        """Maximum tokens of everything shown."""
        return self._cost + self.summary + self._each * sum(self._owed.values())

    @property
    def free(self) -> int:
        """The tokens that are left."""
        return self.room - self.cost

    @property
    def fits(self) -> bool:
        """Whether everything that must stay fits."""
        return self.cost <= self.room

    def is_never_cut(self, unit: MessageGroup) -> bool:
        """Return whether a group is never cut: it has a pinned message, or a compaction summary of limited size."""
        return unit.pinned or 0 < unit.stands_for <= self.room // LARGE

    def is_kept(self, unit: MessageGroup, one: MeasuredMessage) -> bool:
        """Return whether a message is shown unchanged. In a group with tool calls, only pinned messages are."""
        return self.is_never_cut(unit) and (one.pinned or not unit.pinned)

    def cache_summary(self, tell: Callable[[], T]) -> T:
        """Return the cached summary. It changes only with a step, or when a late result belongs to it too."""
        if self._told is None or self._told[0] != (self.cut, self._late):
            self._told = (self.cut, self._late), tell()
        told: T = self._told[1]
        return told

    def extend(self, talk: Turns) -> None:
        """Add the messages since the last call."""
        for index in range(len(self.sizes), len(talk.heard)):
            if self._is_pressed(talk, index):
                self._step(talk)
            self.sizes.append(self._size(talk, index))
            self._cost += self.sizes[-1]
            self._owe(talk, index)
            self._last = max(self._last, talk.unit_of[index])
            if not self.fits:
                self._step(talk)

    def _owe(self, talk: Turns, index: int) -> None:
        one, unit = talk.heard[index], talk.unit_of[index]
        if unit >= self.cut or self.is_never_cut(talk.units[unit]):
            owed = self._owed.pop(unit, 0) + len(one.calls) - (len(one.results) if not one.calls else 0)
            self._owed.update({unit: owed} if owed > 0 else {})

    def _is_pressed(self, talk: Turns, index: int) -> bool:
        """Return whether older messages must make room for a new one that is not too large."""
        one, unit = talk.heard[index], talk.unit_of[index]
        if one.tokens <= 2 * max(self.free, self.room // LARGE):
            one.measure(talk.load, talk.count)
        return unit >= self.mask and self.free < one.tokens <= self.room // LARGE

    def _size(self, talk: Turns, index: int) -> int:
        one, unit = talk.heard[index], talk.unit_of[index]
        if self.is_kept(talk.units[unit], one):
            one.measure(talk.load, talk.count)
            return one.tokens
        if unit < self.cut and not self.is_never_cut(talk.units[unit]):
            self._late += 1
            return 0
        if unit < self.mask:
            return one.masked_tokens
        if one.tokens <= self.free:
            return one.tokens
        # The results of parallel calls get smaller shares, because more follow.
        first = talk.heard[talk.units[unit].messages[0]]
        at_once = max(1, len(first.calls) // 4) if one is not first else 1
        room = max(self.free // SHARE_OF_FREE, self.room // SHARE_OF_ROOM) // at_once
        return min(one.tokens, max(room, one.masked_tokens))  # the masked form is the minimum

    def _step(self, talk: Turns) -> None:
        self.steps += 1
        low, last = int(self.room * FULL), self._last
        self._masks(talk, last + 1 - RECENT, low)
        self._masks(talk, last + 1 - RECENT_LEAST, low)
        self._cuts(talk, last + 1 - RECENT_LEAST, low)
        # From here on recent messages are affected, so do only what is necessary.
        self._masks(talk, last, self.room)
        self._cuts(talk, last, self.room)
        self._masks(talk, last + 1, self.room)
        if not self.fits:
            self._squeeze(talk)

    def _masks(self, talk: Turns, until: int, enough: int) -> None:
        while self.cost > enough and self.mask < until:
            self._take(talk, talk.units[self.mask], masked=True)
            self.mask += 1

    def _cuts(self, talk: Turns, until: int, enough: int) -> None:
        while self.cost > enough and self.cut < min(until, self.mask):
            self._take(talk, talk.units[self.cut], masked=False)
            if self.is_never_cut(talk.units[self.cut]):
                self.kept.append(self.cut)
            else:
                self._owed.pop(self.cut, None)
            self.cut += 1

    def _squeeze(self, talk: Turns) -> None:
        """Shorten what does not fit even masked: the shortest messages stay, the others share the rest."""
        units = [talk.units[place] for place in (*self.kept, *range(self.cut, len(talk.units)))]
        there = [(unit, index) for unit in units for index in unit.messages if index < len(self.sizes)]
        indexes = [index for unit, index in there if not self.is_kept(unit, talk.heard[index])]
        spare = self.free + sum(self.sizes[index] for index in indexes)
        for place, index in enumerate(sorted(indexes, key=self.sizes.__getitem__)):
            share = max(0, spare // (len(indexes) - place))
            if self.sizes[index] > share:
                size = talk.heard[index].shrink(share, talk.load, talk.count)[1]
                self._cost += size - self.sizes[index]
                self.sizes[index] = size
            spare -= self.sizes[index]

    def _take(self, talk: Turns, unit: MessageGroup, *, masked: bool) -> None:
        for index in unit.messages:
            if index < len(self.sizes) and not self.is_kept(unit, talk.heard[index]):
                size = talk.heard[index].masked_tokens if masked or self.is_never_cut(unit) else 0
                self._cost += size - self.sizes[index]
                self.sizes[index] = size
