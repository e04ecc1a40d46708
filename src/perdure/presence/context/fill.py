"""Fills a section: short texts whole, long ones cut to the remaining room."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perdure.presence.context.context import DroppedContent
from perdure.presence.context.layout import CONVERSATION, SectionSlot
from perdure.values.tokens import TokenCounter

LEAST = 40
"""The fewest tokens to cut a long text to. If there is no room for that, later texts are left out."""


class SectionText(msgspec.Struct, frozen=True):
    """A text for a section: a file or a memory."""

    section: str
    text: str
    name: str = ""
    """Its path, shown above the text."""
    newest: bool = False
    """Whether the end matters more than the beginning, as in a log."""
    whole: bool = False
    """Whether it must not be cut, as a memory. No empty line is put between two of these."""


class SectionFill:
    """One section while it is filled."""

    def __init__(self, slot: SectionSlot, pieces: Sequence[SectionText], count: TokenCounter) -> None:
        self.slot, self._count = slot, count
        self.is_talk = slot.name == CONVERSATION
        given = [SectionText(slot.name, slot.text)] if slot.text is not None else pieces
        self._pieces = [piece for piece in given if piece.section == slot.name and piece.text.strip()]
        self._sizes = [count(_add_title(piece)) + 1 for piece in self._pieces]
        self._above = f"## {slot.title}\n\n" + (f"{slot.note}\n\n" if slot.note else "")
        self._heading = count(self._above) + 2
        self.wanted = self._heading + sum(self._sizes) if self._pieces else 0
        self.tokens = self.room = 0
        self.text = ""
        self.dropped: list[DroppedContent] = []

    @property
    def shown(self) -> str:
        """The text with its heading."""
        return self._above + self.text

    def fill(self, room: int) -> None:
        """Take as much as fits, in the order of the texts."""
        self.room, shown = room, list[str]()
        for piece, size, (kept, used) in zip(self._pieces, self._sizes, self._fit_texts(room), strict=True):
            shown += [kept] if kept else []
            if used < size:
                why = "cut to the room of its section" if kept else "no room left in its section"
                self.dropped.append(DroppedContent(piece.name or self.slot.title, why, size - used))
        self.text = ("\n" if any(chunk.whole for chunk in self._pieces) else "\n\n").join(shown)
        self.tokens = self._count(self.shown) if shown else 0

    def _fit_texts(self, room: int) -> list[tuple[str, int]]:
        """Return the shown part of each text, and its tokens."""
        left = room - self._heading
        rooms = allot_room(self._sizes, [piece.whole for piece in self._pieces], left)
        fitted = [self._fit(place, own) for place, own in enumerate(rooms)]
        left -= sum(used for _, used in fitted)
        for place, (kept, used) in enumerate(fitted):  # a line too long for one text leaves room for another
            if used < self._sizes[place] and (left >= LEAST or not kept):
                fitted[place] = self._fit(place, used + left)
                left -= fitted[place][1] - used
        return fitted

    def _fit(self, place: int, room: int) -> tuple[str, int]:
        piece, size = self._pieces[place], self._sizes[place]
        return (_add_title(piece), size) if size <= room else self._cut_piece(piece, room)

    def _cut_piece(self, piece: SectionText, room: int) -> tuple[str, int]:
        """Return as many whole lines as fit, and a line that says what is missing."""
        lines = piece.text.strip().split("\n")
        low, high = 0, 0 if piece.whole or room <= 0 else len(lines) - 1
        while low < high:  # binary search: more lines take more tokens
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._count(_part(piece, lines, middle)) < room else (low, middle - 1)
        text = _part(piece, lines, low) if low else ""
        return (text, self._count(text) + 1) if text else ("", 0)


def allot_room(sizes: Sequence[int], whole: Sequence[bool], room: int) -> list[int]:
    """Share the room: short texts get what they need, long ones equal parts of the rest."""
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


def _add_title(piece: SectionText) -> str:
    text = piece.text.strip()
    return f"<!-- {piece.name} -->\n{text}" if piece.name else text


def _part(piece: SectionText, lines: list[str], kept: int) -> str:
    said = f"[... {len(lines) - kept} more lines{f' are in {piece.name}' if piece.name else ''}]"
    part = [said, *lines[len(lines) - kept :]] if piece.newest else [*lines[:kept], said]
    return _add_title(msgspec.structs.replace(piece, text="\n".join(part)))
