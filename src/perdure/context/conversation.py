"""What is shown of a conversation: pinned and recent turns, older ones masked, the oldest in a summary."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .heard import Heard, short
from .masking import MESSAGE_TOKENS, size_exactly
from .refs import ref_to
from .said import Said, Text
from .shapes import whole
from .shown import Dropped
from .talk import Talk, headed
from .window import Window

FIRST_CHARACTERS = 400
"""Of what the user said first."""


class Shown:
    """The messages of a conversation within a room."""

    def __init__(self, talk: Talk, room: int) -> None:
        self._talk = talk
        self.window: Window = talk.window(room)
        self.dropped: list[Dropped] = []
        self.said: tuple[Said, ...] = ()
        self.tokens = 0
        self.place = 0
        """Where in them stands what changes from turn to turn: before the last words of the user, or where the recent
        part begins, whichever is later."""
        if self.window.fits:
            self._show()
        self.wanted = max(talk.tokens, self.tokens)

    def _show(self) -> None:
        talk, window, said = self._talk, self.window, list[Said]()
        summary = window.told(self._summary) if window.cut else None
        # Where what it stands for was: what the conversation begins with, its instructions mostly, stays its beginning.
        gone = next((place for place, unit in enumerate(talk.units[: window.cut]) if not window.keeps(unit)), 0)
        last_words = (place for place in reversed(range(len(talk.units))) if talk.units[place].role == "user")
        here = max(window.mask, next(last_words, 0))
        for place in (*window.kept, *range(window.cut, len(talk.units))):
            if summary is not None and place > gone:
                said.append(self._told(*summary))
                summary = None
            if place <= here:
                self.place = len(said)
            unit = talk.units[place]
            turn = [self._one(place, window.stays(unit, talk.heard[index]), index) for index in unit.messages]
            said += self._whole(turn, last=place == len(talk.units) - 1)
        if summary is not None:
            said.append(self._told(*summary))
        self.place = len(said) if here >= len(talk.units) else self.place
        self.said = tuple(said)

    def _told(self, summary: Said, dropped: Dropped, tokens: int) -> Said:
        self.dropped.append(dropped)
        self.tokens += tokens
        return summary

    def _whole(self, turn: Sequence[tuple[Said, int]], *, last: bool) -> list[Said]:
        """A turn as a provider takes it, and counted."""
        sizes = {id(one): size for one, size in turn}
        said = whole([one for one, _ in turn], last=last)
        self.tokens += sum(sizes.get(id(one)) or size_exactly(one, self._talk.count) for one in said)
        return said

    def _one(self, place: int, stays: bool, index: int) -> tuple[Said, int]:
        talk, room, one = self._talk, self.window.sizes[index], self._talk.heard[index]
        if stays or (place >= self.window.mask and one.tokens <= room):
            return one.read(talk.load), one.tokens
        if room < one.masked_tokens:
            return self._noted(one, one.tight(room, talk.load, talk.count), "too long for the budget")
        if place < self.window.mask or room <= one.masked_tokens:
            why = "an older turn, masked" if place < self.window.mask else "too long, masked"
            return self._noted(one, (one.masked, one.masked_tokens), why)
        return self._noted(one, one.clipped(room, talk.load, talk.count), "too long, shortened")

    def _noted(self, one: Heard, short: tuple[Said, int], why: str) -> tuple[Said, int]:
        if one.tokens > short[1]:
            self.dropped.append(Dropped(f"message {one.item.position}", why, one.tokens - short[1], one.ref))
        return short

    def _summary(self) -> tuple[Said, Dropped, int] | None:
        """What is not shown any more."""
        talk, window = self._talk, self.window
        units = (unit for unit in talk.units[: window.cut] if not window.keeps(unit))
        gone = [talk.heard[index] for unit in units for index in unit.messages]
        if not gone:
            return None
        ref = ref_to(talk.run, *_range(gone))
        said = Said("user", (Text(summary_of(talk, gone, ref, window.summary - MESSAGE_TOKENS)),))
        left_out = sum(it.tokens for it in gone)
        dropped = Dropped(f"{len(gone)} messages", "older turns, summarised", left_out, ref)
        return said, dropped, size_exactly(said, talk.count)


def summary_of(talk: Talk, gone: Sequence[Heard], ref: str, room: int) -> str:
    """Messages in a few lines, made without a model: what it began with, the latest of them, and where all are."""
    head = headed(len(gone), ref)
    first = next((it for it in gone if it.item.covers is not None or (it.role == "user" and not it.results)), None)
    began, left = _fitting(_began(talk, first) if first is not None else (), room - talk.count(head), talk)
    rest = [it for it in gone if it is not first or it.item.covers is not None]
    latest = (line for it in reversed(rest) for line in reversed(_lines(talk, it)) if not line.startswith(_BEGAN))
    return "\n".join([head, *began, *reversed(_fitting(latest, left, talk)[0])])


_BEGAN = "- It began with:"


def _began(talk: Talk, first: Heard) -> list[str]:
    """What the user said first, which is mostly what it is all about; an earlier summary has it."""
    if first.item.covers is not None:
        return [line for line in _lines(talk, first) if line.startswith(_BEGAN)]
    return [f"{_BEGAN} {short(first.read(talk.load).text, FIRST_CHARACTERS)}"]


def _lines(talk: Talk, it: Heard) -> list[str]:
    """A message is one line; what stands for several already has lines of its own."""
    return [it.line] if it.item.covers is None else it.read(talk.load).text.split("\n")[1:]


def _fitting(lines: Iterable[str], room: int, talk: Talk) -> tuple[list[str], int]:
    """The first lines that there is room for, and what is left of it."""
    shown = list[str]()
    for line in lines:
        size = talk.count(line) + 1
        if size > room:
            break
        shown.append(line)
        room -= size
    return shown, room


def _range(gone: Sequence[Heard]) -> tuple[int, int]:
    numbers = [number for it in gone for number in (it.item.covers or (it.item.position,))]
    return min(numbers), max(numbers)
