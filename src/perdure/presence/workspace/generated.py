"""Files generated from the journal. What people add to them is carried over to each new version."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from perdure.presence.handoff.progress import Progress
from perdure.presence.handoff.progress_text import (
    NotePosition,
    ProgressNotes,
    ProgressPage,
    parse_page,
    render,
    tick_notes,
)
from perdure.presence.workspace.documents import WorkspaceDocument
from perdure.presence.workspace.merge import merge, merge_notes, notes_of


class GeneratedFile(ABC):
    """A generated file in its current version."""

    text: str
    """The generated text, without additions."""

    @abstractmethod
    def keep_additions(self, known: WorkspaceDocument) -> str:
        """Return the new text with people's additions to the last one."""

    @abstractmethod
    def merge_edits(self, base: str | None, ours: str, file: str) -> str:
        """Return the new text with the edits made to the file since `base`. Without a base, edits can only add."""


class HandoffFile(GeneratedFile):
    """HANDOFF.md: added lines stay in place. A text written instead of it is kept behind it, in one piece."""

    def __init__(self, text: str, last: str) -> None:
        self.text, self._last = text, last

    def keep_additions(self, known: WorkspaceDocument) -> str:
        """The last generated text is recorded, so additions are known."""
        if self._is_replaced(known.rendered, known.text):
            return self._render_with(notes_of(known.rendered, known.text))
        return merge_notes(known.rendered, self.text, known.text)

    def merge_edits(self, base: str | None, ours: str, file: str) -> str:
        """Generated text is restored."""
        if base is None:
            return merge_notes(self._last, ours, file, guessed=True)
        if self._is_replaced(base, file):
            before, mine = notes_of(self._last, base), notes_of(self.text, ours)
            return self._render_with(merge(before, mine, notes_of(self._last, file)).text)
        return merge_notes(base, ours, file)

    def _is_replaced(self, base: str, text: str) -> bool:
        """Return whether the file was replaced: the title is gone."""
        title = self.text.partition("\n")[0]
        return title in base.split("\n") and title not in text.split("\n")

    def _render_with(self, notes: str) -> str:
        return f"{self.text}\n{notes}" if notes else self.text


class ProgressFile(GeneratedFile):
    """PROGRESS.md: text under its headings is parsed back, and the rest is kept as written."""

    def __init__(self, found: Sequence[Progress], names: Mapping[str, str]) -> None:
        self._found, self._names = found, names
        self.text = render(found)

    def page(self, text: str) -> ProgressPage:
        """Parse a page."""
        return parse_page(text, self._names)

    def keep_additions(self, known: WorkspaceDocument) -> str:
        """Additions stand outside the generated parts."""
        if known.text == known.rendered:
            return self.text
        return render(self._found, self.page(known.text).notes)

    def merge_edits(self, base: str | None, ours: str, file: str) -> str:
        """Edits are already parsed, so only additions are merged."""
        if base == file:
            return ours
        before = self._notes(base) if base is not None else None
        return render(self._found, _merge_notes(before, self._notes(ours), self._notes(file)))

    def _notes(self, text: str) -> dict[NotePosition, str]:
        """Return the additions with completed boxes ticked, so that a tick is never a conflict."""
        return tick_notes(self.page(text).notes, self._found)


def _merge_notes(base: ProgressNotes | None, ours: ProgressNotes, theirs: ProgressNotes) -> dict[NotePosition, str]:
    found = dict[NotePosition, str]()
    for place in dict.fromkeys((*theirs, *ours)):
        mine, yours = (f"{notes[place]}\n" if place in notes else "" for notes in (ours, theirs))
        merged = merge(None if base is None else f"{base[place]}\n" if place in base else "", mine, yours)
        found[place] = merged.text.strip("\n")
    return {place: note for place, note in found.items() if note}
