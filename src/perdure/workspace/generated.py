"""The files that are made from the journal: what people add to them is carried from one to the next."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from ..handoff.progress import Progress
from ..handoff.progress_text import Notes, Page, Place, read_page, render, ticked
from .documents import Document
from .merging import merge, merge_notes, notes_of


class Made(ABC):
    """One of them, as it is now."""

    text: str
    """Without what anybody has added."""

    @abstractmethod
    def over(self, known: Document) -> str:
        """With what people had added to the last one."""

    @abstractmethod
    def with_edits(self, base: str | None, ours: str, file: str) -> str:
        """With what they have changed in the file since it was `base`; if nobody knows what it was, they only add."""


class Brief(Made):
    """HANDOFF.md: lines that people add stand where they stood.

    What somebody writes in place of it stands behind it, in one piece.
    """

    def __init__(self, text: str, last: str) -> None:
        self.text, self._last = text, last

    def over(self, known: Document) -> str:
        """What was made last is known, and so is what was added."""
        if self._is_replaced(known.rendered, known.text):
            return self._with(notes_of(known.rendered, known.text))
        return merge_notes(known.rendered, self.text, known.text)

    def with_edits(self, base: str | None, ours: str, file: str) -> str:
        """What was made is made again."""
        if base is None:
            return merge_notes(self._last, ours, file, guessed=True)
        if self._is_replaced(base, file):
            before, mine = notes_of(self._last, base), notes_of(self.text, ours)
            return self._with(merge(before, mine, notes_of(self._last, file)).text)
        return merge_notes(base, ours, file)

    def _is_replaced(self, base: str, text: str) -> bool:
        """Whether somebody has written something else: the title is gone."""
        title = self.text.partition("\n")[0]
        return title in base.split("\n") and title not in text.split("\n")

    def _with(self, notes: str) -> str:
        return f"{self.text}\n{notes}" if notes else self.text


class Steps(Made):
    """PROGRESS.md: what stands under its headings is read back, and the rest is as people have written it."""

    def __init__(self, found: Sequence[Progress], names: Mapping[str, str]) -> None:
        self._found, self._names = found, names
        self.text = render(found)

    def page(self, text: str) -> Page:
        """What such a page says."""
        return read_page(text, self._names)

    def over(self, known: Document) -> str:
        """What people have added is in no part of it that is made."""
        if known.text == known.rendered:
            return self.text
        return render(self._found, self.page(known.text).notes)

    def with_edits(self, base: str | None, ours: str, file: str) -> str:
        """What was edited has been read already: only what is nobody's but theirs is merged."""
        if base == file:
            return ours
        before = self._notes(base) if base is not None else None
        return render(self._found, _merged(before, self._notes(ours), self._notes(file)))

    def _notes(self, text: str) -> dict[Place, str]:
        """With the boxes ticked that the new page has ticked: a box that one has ticked contradicts nobody."""
        return ticked(self.page(text).notes, self._found)


def _merged(base: Notes | None, ours: Notes, theirs: Notes) -> dict[Place, str]:
    found = dict[Place, str]()
    for place in dict.fromkeys((*theirs, *ours)):
        mine, yours = (f"{notes[place]}\n" if place in notes else "" for notes in (ours, theirs))
        merged = merge(None if base is None else f"{base[place]}\n" if place in base else "", mine, yours)
        found[place] = merged.text.strip("\n")
    return {place: note for place, note in found.items() if note}
