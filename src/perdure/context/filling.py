"""A section is filled: of its pieces what is short goes in whole, and what is long is cut to what is left."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..tokens import Tokens
from .layout import CONVERSATION, Slot
from .shown import Dropped

LEAST = 40
"""Tokens with which a long piece can say something: of more pieces than have room for that, the first are shown."""


class Piece(msgspec.Struct, frozen=True):
    """A text that belongs into a section: a file, a memory."""

    section: str
    text: str
    name: str = ""
    """What it is: a path. It stands above the text."""
    newest: bool = False
    """Whether its end matters more than its beginning: a log."""
    whole: bool = False
    """Whether it is shown as it is, or not at all: a memory. Between two of them is no empty line."""


class Filling:
    """One section on its way."""

    def __init__(self, slot: Slot, pieces: Sequence[Piece], count: Tokens) -> None:
        self.slot, self._count = slot, count
        self.is_talk = slot.name == CONVERSATION
        given = [Piece(slot.name, slot.text)] if slot.text is not None else pieces
        self._pieces = [it for it in given if it.section == slot.name and it.text.strip()]
        self._sizes = [count(_titled(piece)) + 1 for piece in self._pieces]
        self._above = f"## {slot.title}\n\n" + (f"{slot.note}\n\n" if slot.note else "")
        self._heading = count(self._above) + 2
        self.wanted = self._heading + sum(self._sizes) if self._pieces else 0
        self.tokens = self.room = 0
        self.text = ""
        self.dropped: list[Dropped] = []

    @property
    def shown(self) -> str:
        """With its heading."""
        return self._above + self.text

    def fill(self, room: int) -> None:
        """Take as much as there is room for; they stand in their order, whoever was first to get some of it."""
        self.room, shown = room, list[str]()
        for piece, size, (kept, used) in zip(self._pieces, self._sizes, self._fitted(room), strict=True):
            shown += [kept] if kept else []
            if used < size:
                why = "cut to the room of its section" if kept else "no room left in its section"
                self.dropped.append(Dropped(piece.name or self.slot.title, why, size - used))
        self.text = ("\n" if any(it.whole for it in self._pieces) else "\n\n").join(shown)
        self.tokens = self._count(self.shown) if shown else 0

    def _fitted(self, room: int) -> list[tuple[str, int]]:
        """Of each piece what is shown, and what that takes."""
        left = room - self._heading
        rooms = allotted(self._sizes, [it.whole for it in self._pieces], left)
        fitted = [self._fit(place, own) for place, own in enumerate(rooms)]
        left -= sum(used for _, used in fitted)
        for place, (kept, used) in enumerate(fitted):  # a line that is too long for one leaves room for another
            if used < self._sizes[place] and (left >= LEAST or not kept):
                fitted[place] = self._fit(place, used + left)
                left -= fitted[place][1] - used
        return fitted

    def _fit(self, place: int, room: int) -> tuple[str, int]:
        piece, size = self._pieces[place], self._sizes[place]
        return (_titled(piece), size) if size <= room else self._cut(piece, room)

    def _cut(self, piece: Piece, room: int) -> tuple[str, int]:
        """As many whole lines as fit, and one that says what is missing."""
        lines = piece.text.strip().split("\n")
        low, high = 0, 0 if piece.whole or room <= 0 else len(lines) - 1
        while low < high:  # the text grows with its lines: the last number that fits is found by halving
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._count(_part(piece, lines, middle)) < room else (low, middle - 1)
        text = _part(piece, lines, low) if low else ""
        return (text, self._count(text) + 1) if text else ("", 0)


def allotted(sizes: Sequence[int], whole: Sequence[bool], room: int) -> list[int]:
    """What each piece may have: a short one all that it needs, long ones the same part each of what is left."""
    taken, spare = list[int](), room
    for place, size in enumerate(sizes):
        needed = size if whole[place] else min(size, LEAST)
        if needed <= spare:
            taken.append(place)
            spare -= needed
    rooms = [0] * len(sizes)
    for number, place in enumerate(sorted(taken, key=lambda place: (not whole[place], sizes[place]))):
        rooms[place] = sizes[place] if whole[place] else min(sizes[place], room // (len(taken) - number))
        room -= rooms[place]
    return rooms


def _titled(piece: Piece) -> str:
    text = piece.text.strip()
    return f"<!-- {piece.name} -->\n{text}" if piece.name else text


def _part(piece: Piece, lines: list[str], kept: int) -> str:
    said = f"[... {len(lines) - kept} more lines{f' are in {piece.name}' if piece.name else ''}]"
    part = [said, *lines[len(lines) - kept :]] if piece.newest else [*lines[:kept], said]
    return _titled(msgspec.structs.replace(piece, text="\n".join(part)))
