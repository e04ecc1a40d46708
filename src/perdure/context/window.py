"""Which messages of a conversation are shown within a room, and how: whole, shortened, in a summary.

It follows the conversation message by message, and what it decides depends on nothing but the messages so far: after a
crash, in another process, it is the same. Each message is shown as a whole when it comes, up to a limit. When the room
is full there is a *step*: older observations are masked, still older turns go into the summary, until only a part of
the room is taken. Between two steps nothing that was shown changes, so that a provider's cache of the beginning hits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from .heard import Heard
    from .talk import Talk, Unit

T = TypeVar("T")

FULL = 0.55
"""Of the room, so much is taken after a step: the rest is filled before the next one."""

RECENT, RECENT_LEAST = 12, 3
"""Units at the end that are not masked in a step; and when there is no room for so many of them."""

LARGE = 4
"""A message up to a fourth of the room is shown as a whole when it comes, if need be after a step."""

SHARE_OF_FREE, SHARE_OF_ROOM = 4, 12
"""A larger one too, while there is room for it; else a fourth of what is free, or a twelfth of the room."""

SUMMARY = 10
"""A tenth of the room is for the summary, once there is one."""


class Window:
    """The state of one room."""

    def __init__(self, room: int, head: int, owed: int) -> None:
        self.room = room
        self._head = head
        """What a summary takes that says nothing but where the messages are."""
        self._each = owed
        """What stands for a result takes that never came."""
        self._owed: dict[int, int] = {}
        """Of each unit that is shown, how many calls have no result so far: they get one, if none comes."""
        self.steps = 0
        self.cut = 0
        """Units before this one are in the summary, unless they are pinned."""
        self.mask = 0
        """Units before this one are masked, unless they are pinned."""
        self.sizes: list[int] = []
        """Of each message, what it takes at most."""
        self._cost = 0
        self.kept: list[int] = []
        """Units before the cut that stay."""
        self._told: tuple[tuple[int, int], Any] | None = None
        self._late = 0
        self._last = -1
        """The latest unit that it knows of: there may be more by now, and what it decides must not depend on them."""

    @property
    def summary(self) -> int:
        """What the summary may take."""
        return max(self.room // SUMMARY, self._head) if self.cut else 0

    @property
    def cost(self) -> int:
        """What everything takes at most."""
        return self._cost + self.summary + self._each * sum(self._owed.values())

    @property
    def free(self) -> int:
        """What is left."""
        return self.room - self.cost

    @property
    def fits(self) -> bool:
        """Whether all that must stay does."""
        return self.cost <= self.room

    def keeps(self, unit: Unit) -> bool:
        """Whether it is never cut: some of it is pinned, or it stands for what was compacted, unless that is long."""
        return unit.pinned or 0 < unit.stands_for <= self.room // LARGE

    def stays(self, unit: Unit, one: Heard) -> bool:
        """Whether a message is shown as it is. Of a call and its results only what was pinned: results may be long."""
        return self.keeps(unit) and (one.pinned or not unit.pinned)

    def told(self, tell: Callable[[], T]) -> T:
        """What is told of what is cut: the same until there is a step, or a late result belongs to it too."""
        if self._told is None or self._told[0] != (self.cut, self._late):
            self._told = (self.cut, self._late), tell()
        told: T = self._told[1]
        return told

    def follow(self, talk: Talk) -> None:
        """Take in the messages that have come since."""
        for index in range(len(self.sizes), len(talk.heard)):
            if self._is_pressed(talk, index):
                self._step(talk)
            self.sizes.append(self._size(talk, index))
            self._cost += self.sizes[-1]
            self._owe(talk, index)
            self._last = max(self._last, talk.unit_of[index])
            if not self.fits:
                self._step(talk)

    def _owe(self, talk: Talk, index: int) -> None:
        one, unit = talk.heard[index], talk.unit_of[index]
        if unit >= self.cut or self.keeps(talk.units[unit]):
            owed = self._owed.pop(unit, 0) + len(one.calls) - (len(one.results) if not one.calls else 0)
            self._owed.update({unit: owed} if owed > 0 else {})

    def _is_pressed(self, talk: Talk, index: int) -> bool:
        """Whether others must make way for a new message, which is not that large."""
        one, unit = talk.heard[index], talk.unit_of[index]
        if one.tokens <= 2 * max(self.free, self.room // LARGE):
            one.measure(talk.load, talk.count)
        return unit >= self.mask and self.free < one.tokens <= self.room // LARGE

    def _size(self, talk: Talk, index: int) -> int:
        one, unit = talk.heard[index], talk.unit_of[index]
        if self.stays(talk.units[unit], one):
            one.measure(talk.load, talk.count)
            return one.tokens
        if unit < self.cut and not self.keeps(talk.units[unit]):
            self._late += 1
            return 0
        if unit < self.mask:
            return one.masked_tokens
        if one.tokens <= self.free:
            return one.tokens
        # Of calls that are made at once, each result has a smaller share: others follow.
        first = talk.heard[talk.units[unit].messages[0]]
        at_once = max(1, len(first.calls) // 4) if one is not first else 1
        room = max(self.free // SHARE_OF_FREE, self.room // SHARE_OF_ROOM) // at_once
        return min(one.tokens, max(room, one.masked_tokens))  # in less than that nothing can be said

    def _step(self, talk: Talk) -> None:
        self.steps += 1
        low, last = int(self.room * FULL), self._last
        self._masks(talk, last + 1 - RECENT, low)
        self._masks(talk, last + 1 - RECENT_LEAST, low)
        self._cuts(talk, last + 1 - RECENT_LEAST, low)
        # What follows breaks into what is recent, and does no more than it must.
        self._masks(talk, last, self.room)
        self._cuts(talk, last, self.room)
        self._masks(talk, last + 1, self.room)
        if not self.fits:
            self._squeeze(talk)

    def _masks(self, talk: Talk, until: int, enough: int) -> None:
        while self.cost > enough and self.mask < until:
            self._take(talk, talk.units[self.mask], masked=True)
            self.mask += 1

    def _cuts(self, talk: Talk, until: int, enough: int) -> None:
        while self.cost > enough and self.cut < min(until, self.mask):
            self._take(talk, talk.units[self.cut], masked=False)
            if self.keeps(talk.units[self.cut]):
                self.kept.append(self.cut)
            else:
                self._owed.pop(self.cut, None)
            self.cut += 1

    def _squeeze(self, talk: Talk) -> None:
        """What is left is too long even when it is masked: the shortest stay, the others share what there is."""
        units = [talk.units[place] for place in (*self.kept, *range(self.cut, len(talk.units)))]
        there = [(unit, index) for unit in units for index in unit.messages if index < len(self.sizes)]
        indexes = [index for unit, index in there if not self.stays(unit, talk.heard[index])]
        spare = self.free + sum(self.sizes[index] for index in indexes)
        for place, index in enumerate(sorted(indexes, key=self.sizes.__getitem__)):
            share = max(0, spare // (len(indexes) - place))
            if self.sizes[index] > share:
                size = talk.heard[index].tight(share, talk.load, talk.count)[1]
                self._cost += size - self.sizes[index]
                self.sizes[index] = size
            spare -= self.sizes[index]

    def _take(self, talk: Talk, unit: Unit, *, masked: bool) -> None:
        for index in unit.messages:
            if index < len(self.sizes) and not self.stays(unit, talk.heard[index]):
                size = talk.heard[index].masked_tokens if masked or self.keeps(unit) else 0
                self._cost += size - self.sizes[index]
                self.sizes[index] = size
