"""Writes and parses PROGRESS.md. A `claude-progress.txt` of the same shape is parsed too; any other is context.

What people add in their own format is kept as it is on every new page; only its boxes are parsed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from perdure.presence.handoff.progress import Progress, ProgressUpdate, is_over, join_lines
from perdure.values.lines import lines_of

TITLE = "Progress"
_NOT_YET = "Nothing has been begun yet."
NOTHING = f"# {TITLE}\n\n{_NOT_YET}\n"
_NONE = "None."
_STANDS = {
    "finished": "This run is finished.",
    "cancelled": "This run is cancelled.",
    "cancelling": "This run is being cancelled.",
    "failed": "This run has failed, and can be resumed.",
    "interrupted": "This run was interrupted, and can be resumed.",
    "crashed": "This run has crashed, and can be resumed.",
    "paused": "This run is paused.",
    "waiting": "This run waits.",
}
"""What a section says about the status of its run. A running one has no line: a killed process cannot remove it."""
_STATUS_OF = {line: status for status, line in _STANDS.items()}

_PARTS = {
    "goal": ("goal", "objective", "task"),
    "done": ("completed steps", "completed", "done", "steps", "completed tasks", "what was done", "what is done"),
    "blockers": ("current blocker", "blockers", "blocker", "blocked", "current blockers", "known issues"),
    "next_action": ("next action", "next", "next step", "next steps", "next actions"),
    "context": ("context", "notes", "important context"),
}
"""Headings that are recognized for each part; the first is the one written."""
_LEFT = ("in progress", "to do", "todo", "remaining", "pending", "open")
_PART_OF = {heading: part for part, headings in {**_PARTS, "left": _LEFT}.items() for heading in headings}
_LISTS = ("done", "left", "blockers")
_HEADINGS = {headings[0] for headings in _PARTS.values()}

_HEADING = re.compile(r"(#{1,6})\s+(|.*[^\s#])[\s#]*")
_LABEL = re.compile(r"([-*]\s+)?(?:\*\*)?([A-Za-z][A-Za-z ]{2,30}?)(?:\*\*)?:(?:\*\*)?\s*(.*)")
_BOX = re.compile(r"(\s*(?:[-*+]|\d+[.)])\s+\[)([ xX])(\]\s*)(.*)")
_BULLET = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+(.*)")
_FENCE = re.compile(r"\s*(?:```|~~~)")

NotePosition = tuple[str, str]
"""The position of text that people have added: the section, and the part after which it stands."""
ProgressNotes = Mapping[NotePosition, str]
TOP: NotePosition = ("", "^")
"""Before all sections."""


# -- writing ----------------------------------------------------------------------------------------------------------


def render(all_of_it: Sequence[Progress], notes: ProgressNotes | None = None) -> str:
    """Render all progress as one page, including what people have added."""
    notes, shown = notes or {}, {one.run for one in all_of_it} or {""}
    done = next((one.done for one in all_of_it if not one.run), ())
    page = [list(_iterate_additions(notes, *TOP, done))[1:]]
    gone = dict.fromkeys(run for run, part in notes if run not in shown and (run, part) != TOP)
    page += [list(_remains(run, notes)) for run in gone if not run]
    page += [list(_section(one, notes)) for one in all_of_it] or [[*_remains("", notes, _NOT_YET)]]
    page += [list(_remains(run, notes)) for run in gone if run]
    return "\n".join("\n".join(lines) + "\n" for lines in page if lines)


def tick_notes(notes: ProgressNotes, all_of_it: Sequence[Progress]) -> dict[NotePosition, str]:
    """Return what people have added, with the boxes of completed items ticked."""
    done = {one.run: one.done for one in all_of_it}
    return {
        place: "\n".join(_tick_line(line, done.get(place[0], ())) for line in note.split("\n"))
        for place, note in notes.items()
    }


def _remains(run: str, notes: ProgressNotes, said: str = "") -> Iterator[str]:
    """Yield what people have added to a section that no longer exists."""
    yield _title(run)
    yield from ("", said) if said else ()
    for place in notes:
        if place[0] == run and place != TOP:
            yield from _iterate_additions(notes, *place, ())


def _title(run: str) -> str:
    return f"# {TITLE}: {join_lines(run)}" if run else f"# {TITLE}"


def _section(progress: Progress, notes: ProgressNotes) -> Iterator[str]:
    """Render a section. An item for which people have a box of their own is ticked there and not repeated."""
    own = {text for (run, _), note in notes.items() if run == progress.run for text, _ in _boxes(note)}
    done, left = ([one for one in map(join_lines, items) if one not in own] for items in (progress.done, progress.left))
    yield _title(progress.run)
    yield from ("", _STANDS[progress.status]) if progress.run and progress.status in _STANDS else ()
    yield from _iterate_additions(notes, progress.run, "", progress.done)
    for part, lines in (
        ("goal", _text(progress.goal)),
        ("done", [*(f"- [x] {one}" for one in done), *(f"- [ ] {one}" for one in left)]),
        ("left", ()),
        ("blockers", [f"- {_item(one)}" for one in progress.blockers]),
        ("next_action", _text(progress.next_action)),
        ("context", _text(progress.context)),
    ):
        if lines or part not in ("context", "left"):
            yield from ("", f"## {_PARTS[part][0].capitalize()}", "", *(lines or [_NONE]))
        yield from _iterate_additions(notes, progress.run, part, progress.done)


def _iterate_additions(notes: ProgressNotes, run: str, part: str, done: Sequence[str]) -> Iterator[str]:
    """Yield what people have added at one position."""
    note = notes.get((run, part))
    if note:
        yield ""
        yield from (_tick_line(line, done) for line in note.split("\n"))


def _tick_line(line: str, done: Sequence[str]) -> str:
    box = _BOX.fullmatch(line)
    if box is None or box[2] != " " or join_lines(box[4]) not in done:
        return line
    return f"{box[1]}x{box[3]}{box[4]}"


def _item(text: str) -> str:
    """Render an item of a list without boxes, so that it cannot be mistaken for a box."""
    line = join_lines(text)
    return f"\\{line}" if line.startswith(("[", "\\")) else line


def _text(text: str) -> list[str]:
    """Return the lines of a text, escaped so that none can be mistaken for markup of the page."""
    lines = lines_of(text.strip()) if text.strip() else []
    return [f"\\{line}" if _is_marked(line) else line for line in lines]


def _is_marked(line: str) -> bool:
    """Return whether a line looks like a heading or a box, escaped or not."""
    return line.lstrip().startswith(("#", "\\")) or bool(_BOX.fullmatch(line)) or _label_of(line) is not None


# -- reading ----------------------------------------------------------------------------------------------------------


class ProgressPage(msgspec.Struct, frozen=True):
    """A parsed page: its sections, and what people have added."""

    sections: tuple[Progress, ...]
    notes: dict[NotePosition, str]


def parse(text: str) -> list[Progress]:
    """Parse a progress file of another program. A file of another shape is context as a whole."""
    if _has_our_shape(text):
        return list(_ProgressReader(None).page(text).sections)
    context = "\n".join(lines_of(text.removeprefix("\ufeff"))).strip()
    return [Progress(context=context)] if context else []


def _has_our_shape(text: str) -> bool:
    """Return whether a file can be a copy of PROGRESS.md: sections with all of our headings and no others."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    headings = [found for found in map(_HEADING.fullmatch, lines) if found is not None]
    titles = [one for one in headings if len(one[1]) == 1 and f"{one[2]}: ".startswith(f"{TITLE}: ")]
    missing = _HEADINGS - {_words(one) for one in headings if _is_ours(one)} - {_PARTS["context"][0]}
    return bool(titles) and not missing and all(one in titles or _is_ours(one) for one in headings)


def parse_page(text: str, names: Mapping[str, str]) -> ProgressPage:
    """Parse PROGRESS.md; `names` maps section titles to runs."""
    return _ProgressReader(names).page(text)


class _ProgressReader:
    """Parses a page line by line."""

    def __init__(self, names: Mapping[str, str] | None) -> None:
        self._names = names
        self._found: dict[str, _ProgressSection] = {}
        self._notes: dict[NotePosition, list[str]] = {}
        self._run = ""
        self._titled: set[str] = set()
        self._ours = False
        """Whether the page has our shape: then other headings belong to people."""
        self._own = 0
        """The level of the heading of a part that people wrote; 0 outside of such a part."""
        self._fenced = False

    def page(self, text: str) -> ProgressPage:
        """Parse a whole page."""
        lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
        headings = filter(None, map(_HEADING.fullmatch, lines))
        self._ours = self._names is not None and any(map(_is_ours, headings))
        for line in lines:
            self._take(line)
        made = (section.make_progress(run) for run, section in self._found.items())
        kept = {place: _trim_lines(lines) for place, lines in self._notes.items()}
        notes = {place: note for place, note in kept.items() if note}
        return ProgressPage(tuple(one for one in made if one.run in self._titled or one != Progress()), notes)

    def _take(self, line: str) -> None:
        heading = _HEADING.fullmatch(line)
        if heading is not None and self._is_section_start(heading):
            return
        section = self._found.setdefault(self._run, _ProgressSection())
        if heading is not None and (part := self._find_opened_part(heading, section)):
            section.part, self._own, self._fenced = part, 0, False
        elif self._run and not (section.part or self._own) and line.strip() in _STATUS_OF:
            section.status = _STATUS_OF[line.strip()]
        elif self._names is None:
            section.take(line, heading)
        elif heading is not None:
            self._own = min(self._own or 6, len(heading[1]))
            self._keep(line)
        elif self._own or self._is_loose(line, section):
            self._keep(line)
            self._fenced ^= bool(_FENCE.match(line))
            if not self._fenced:
                section.tick(line)
        else:
            section.take(line, None)

    def _is_section_start(self, heading: re.Match[str]) -> bool:
        """Return whether a heading begins a section."""
        title = heading[2] if len(heading[1]) == 1 else ""
        name = title[len(TITLE) + 2 :]
        if title != TITLE and not (title.startswith(f"{TITLE}: ") and (self._names is None or name in self._names)):
            return False
        self._run = self._names[name] if name and self._names is not None else name
        self._titled.add(self._run)
        self._own, self._fenced = 0, False
        self._found.setdefault(self._run, _ProgressSection()).part = ""
        return True

    def _find_opened_part(self, heading: re.Match[str], section: _ProgressSection) -> str:
        """Return the part that a heading opens. Within text of people, only a missing part can be opened."""
        part = _PART_OF.get(_words(heading), "")
        if self._ours and not _is_ours(heading):
            return ""
        level = len(heading[1])
        return part if not self._own or level <= self._own or (level <= 2 and part not in section.seen) else ""

    def _is_loose(self, line: str, section: _ProgressSection) -> bool:
        """Return whether a line stands before any part."""
        return not section.part and _label_of(line) is None and line.strip() != _NOT_YET

    def _keep(self, line: str) -> None:
        part = self._found[self._run].part
        place = (self._run, part) if part or self._run in self._titled else TOP
        self._notes.setdefault(place, []).append(line)


class _ProgressSection:
    def __init__(self) -> None:
        self.status = self._part = ""
        self.seen: set[str] = set()
        self._done: list[str] = []
        self._left: list[str] = []
        self._blockers: list[str] = []
        self._lines: dict[str, list[str]] = {part: [] for part in ("goal", "next_action", "context")}
        self._heading = ""
        """An unknown heading, kept only if there is text under it."""

    @property
    def part(self) -> str:
        """The current part; empty before the first heading."""
        return self._part

    @part.setter
    def part(self, part: str) -> None:
        self._part = part
        self.seen.add(part)

    def take(self, line: str, heading: re.Match[str] | None) -> None:
        """Add a line."""
        if heading is not None:
            self.part, self._heading = "context", line
        elif (label := _label_of(line)) and not (self._part in _LISTS and _BULLET.fullmatch(line)):
            self.part = label[0]
            if label[1]:
                self._item(label[1])
        elif line.startswith("\\") and _is_marked(line[1:]):
            self._item(line[1:], plain=True)
        else:
            self._item(line)

    def tick(self, line: str) -> None:
        """Parse a line that people wrote: it counts only if it is a box."""
        for text, ticked in _boxes(line):
            (self._done if ticked else self._left).append(text)

    def _item(self, line: str, plain: bool = False) -> None:
        bullet = _BULLET.fullmatch(line)
        if not plain and _BOX.fullmatch(line):
            self.tick(line)
        elif self._part in _LISTS:
            items = {"done": self._done, "left": self._left}.get(self._part, self._blockers)
            text = bullet[1].strip() if bullet is not None else line.strip()
            items.append(text[1:] if text.startswith(("\\[", "\\\\")) else text)
        else:
            above = [self._heading] if self._part == "context" and self._heading and line.strip() else []
            self._heading = "" if above else self._heading
            self._lines[self._part or "context"] += [*above, line.rstrip()]

    def make_progress(self, run: str) -> Progress:
        """Return the parsed section."""
        texts = {part: "\n".join(lines).strip() for part, lines in self._lines.items()}
        plain = {part: "" if _is_empty(text) else text for part, text in texts.items()}
        lists = (self._done, self._left, self._blockers)
        done, left, blockers = (tuple(one for one in items if not _is_empty(one)) for items in lists)
        return Progress(run, done=done, left=left, blockers=blockers, status=self.status, **plain)


def _boxes(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the boxes in a text, and whether they are ticked."""
    found = (_BOX.fullmatch(line) for line in text.split("\n"))
    yield from ((join_lines(box[4]), box[2] in "xX") for box in found if box is not None)


def _words(heading: re.Match[str]) -> str:
    return heading[2].rstrip(":").casefold()


def _is_ours(heading: re.Match[str]) -> bool:
    return len(heading[1]) == 2 and _words(heading) in _HEADINGS


def _label_of(line: str) -> tuple[str, str] | None:
    """Parse a label such as `Next steps: ...`, used instead of headings."""
    found = _LABEL.fullmatch(line)
    part = _PART_OF.get(found[2].casefold()) if found is not None else None
    return (part, found[3]) if found is not None and part is not None else None


def _is_empty(text: str) -> bool:
    return text.strip().rstrip(".").casefold() in ("", "none", "nothing", "n/a", "-") or text.strip() == _NOT_YET


def _trim_lines(lines: Sequence[str]) -> str:
    """Return lines without the empty ones around them."""
    there = [place for place, line in enumerate(lines) if line.strip()]
    return "\n".join(lines[there[0] : there[-1] + 1]) if there else ""


# -- edits by people --------------------------------------------------------------------------------------------------


def edits(before: Sequence[Progress], after: Sequence[Progress], *, removes: bool = True) -> list[ProgressUpdate]:
    """Return the edits of a page as reports. If the page `before` is unknown, nothing counts as removed."""
    old, new = {one.run: one for one in before}, {one.run: one for one in after}
    found = [(run, _changes(old.get(run, Progress(run)), progress, removes)) for run, progress in new.items()]
    # Removing a section drops its open boxes; items from the journal are shown again.
    gone = [
        (run, {"dropped": list(progress.left)})
        for run, progress in old.items()
        if progress.left and run not in new and removes
    ]
    return [(run, what) for run, what in (*found, *gone) if what]


def _changes(old: Progress, new: Progress, removes: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        name: getattr(new, name)
        for name in ("goal", "next_action", "context")
        if getattr(new, name) != getattr(old, name) and (removes or getattr(new, name))
    }
    blockers = [*new.blockers, *(one for one in old.blockers if not removes and one not in new.blockers)]
    if {*blockers} != {*old.blockers}:
        found["blockers"] = blockers
    if is_over(status := new.status or old.status) and ("blockers" in found or "next_action" in found):
        # The person saw that the run is over, so what is left on the page is meant for now.
        found |= {"blockers": blockers, "next_action": new.next_action, "status": status}
    # Of several boxes with the same text, all are ticked when it is done.
    was_done, is_done = ({*page.done} - {*page.left} for page in (old, new))
    lists = {
        "done": [one for one in dict.fromkeys(new.done) if one in is_done - was_done],
        "undone": [one for one in dict.fromkeys(old.done) if one not in new.done or _is_opened(one, old, new)],
        "left": [one for one in new.left if one not in old.left and (removes or one not in old.done)],
        "dropped": [one for one in old.left if one not in (*new.left, *new.done)],
    }
    kept = lists.items() if removes else [(name, lists[name]) for name in ("done", "left")]
    return found | {name: items for name, items in kept if items}


def _is_opened(one: str, old: Progress, new: Progress) -> bool:
    """Return whether a person has unticked one of several boxes with the same text."""
    return one not in old.left and one in new.left and new.done.count(one) < old.done.count(one)
