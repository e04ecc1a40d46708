"""Progress as other harnesses and people write it down (`claude-progress.txt`): read by its words, not by its shape.

What is understood becomes goal, done, left, blockers and next action. Whatever is not is context, as it was written:
no line is lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..lines import lines_of
from .progress import Progress, one_line

# -- headings, by their words -----------------------------------------------------------------------------------------

_FIRST = {
    "goal": "goal goals objective objectives",
    "done": "done did completed finished accomplished accomplishments achievements implemented",
    "left": "todo todos to-do to-dos remaining upcoming pending outstanding",
    "next": "next",
    "blockers": "blocked blocker blockers blocking",
}
"""Words that say what a heading is of, when they come first in it."""
_WHOLE = {
    "goal": ("task", "current task"),
    "done": ("steps",),
    "left": ("in progress", "in-progress", "work in progress", "to do", "still to do", "left to do", "left", "open"),
    "blockers": ("known issues",),
    "context": ("context", "notes", "important context"),
}
"""Headings that say it with all of their words."""
_PART_OF = {word: part for part, words in _FIRST.items() for word in words.split()}
_PART_OF_ALL = {words: part for part, several in _WHOLE.items() for words in several}
_BEFORE = {
    *"what what's was is were has have been we we've i i've current currently recently already the my our".split()
}
_BEFORE |= {*"item items task tasks step steps feature features work".split()}
_BEHIND = {*"this session sessions so far today now in on by for to the item items task tasks step steps".split()}
_BEHIND |= {*"feature features work action actions should up list things yet here".split()}
"""Words that may stand around them, and say nothing more."""
_COUNT = re.compile(r"[\s:–—-]*[(\[]?\s*\d+(?:\s*(?:/|of)\s*\d+)?\s*%?\s*[)\]]?\s*:?\s*$")
_NUMBER = re.compile(r"^\s*\d+[.)]\s+")
_WORD = re.compile(r"[^\W_]+(?:[.'-][^\W_]+)*")
"""Next.js is another word than next."""
HEADING_MAX, COUNT_MAX = 100, 20
"""Characters of a heading that anybody knows; what is longer is text."""


class Known(NamedTuple):
    """What a heading is of, and whether it says no more than that."""

    part: str
    plain: bool


def known(heading: str) -> Known | None:
    """A heading that says what stands under it, with or without emoji, counts and colons."""
    if len(heading) > HEADING_MAX:
        return None
    text = _NUMBER.sub("", _COUNT.sub("", heading)).casefold().replace("’", "'").replace("(s)", "s")
    words = _WORD.findall(text)
    if part := _PART_OF_ALL.get(" ".join(words)):
        return Known(part, True)
    while words and words[0] in _BEFORE:
        del words[0]
    part = _PART_OF_ALL.get(" ".join(words)) or (_PART_OF.get(words[0]) if words else None)
    return None if part is None else Known(part, {*words[1:]} <= _BEHIND or " ".join(words) in _PART_OF_ALL)


# -- lines ------------------------------------------------------------------------------------------------------------

_MARKED = re.compile(r"#{1,6}\s+(.*)")
_BOLD = re.compile(r"(\*\*|__)([^*_]+)\1\s*")
_LABEL = re.compile(r"(?:\*\*|__)?([^:*#|`]{2,60}?)(?:\*\*|__)?\s*:(?:\*\*|__)?(?:\s+(.*))?")
_SESSION = re.compile(r"session\b[^.]{0,60}\d[^.]{0,40}", re.IGNORECASE)
_BULLET = re.compile(r"(\s*)(?:[-*+•‣◦–]|\d{1,4}[.)])\s+(.*)")
_BOX = re.compile(r"\[([ xX✓✔√]?)\](?:\s+(.*))?")
_HALF = re.compile(r"\[[-~>!/?]\]\s+.*")
_TICK = re.compile("[✅☑✔✓\U0001f5f9]\ufe0f?\\s*(.*)")
_NO_TICK = re.compile("[☐⬜◻\U0001f532]\ufe0f?\\s*(.*)")
_NOT_DONE = re.compile("[❌⏳⌛✗✘☒\U0001f6a7\U0001f504\U0001f7e1\U0001f534]\ufe0f?\\s*\\S.*")
_RULE = re.compile(r"\s*([=*_~-])\s*(?:\1\s*){2,}")
_FENCE = re.compile(r"\s*(?:```|~~~)")
_NOTHING = ("", "none", "none yet", "nothing", "n/a", "-")
_LISTS = ("done", "left", "blockers")
_TITLE = "progress"
"""Our page has that heading anyway."""


def _box(text: str) -> tuple[bool, str] | None:
    """Whether it is ticked, and what it says: boxes of all kinds, also without a bullet."""
    if box := _BOX.fullmatch(text):
        return box[1].strip() != "", box[2] or ""
    if tick := _TICK.fullmatch(text):
        return True, tick[1]
    if tick := _NO_TICK.fullmatch(text):
        return False, tick[1]
    return (False, text) if _HALF.fullmatch(text) or _NOT_DONE.fullmatch(text) else None


def _says_nothing(text: str) -> bool:
    return text.strip().rstrip(".").casefold() in _NOTHING


class Opening(NamedTuple):
    """A line that opens a part: a heading, or `Blocked on: ...`."""

    heading: str
    rest: str
    marked: bool
    """Whether it is a heading for sure, also if nobody knows it."""


def _opening(line: str, following: str) -> Opening | None:
    """What a line opens; one that only has the words of a heading does if a list stands under it."""
    text, marked = line.strip(), False
    if found := _MARKED.fullmatch(text):
        text, marked = found[1].rstrip("# "), True
    elif found := _BOLD.fullmatch(text):
        text, marked = found[2], True
    elif _SESSION.fullmatch(text) or (_RULE.fullmatch(following) and following.strip()[0] == "="):
        marked = True
    label = _LABEL.fullmatch(text)
    if label and (it := known(label[1])) and it.plain:
        rest = label[2] or ""
        is_count = len(rest) <= COUNT_MAX and _COUNT.fullmatch(rest)
        return Opening(label[1], "" if is_count else rest, marked)
    if marked or (_is_listed(following) and (it := known(text)) and it.plain):
        return Opening(text, "", marked)
    return None


def _is_listed(line: str) -> bool:
    return bool(_BULLET.fullmatch(line) or _RULE.fullmatch(line)) or _box(line.strip()) is not None


# -- the text ---------------------------------------------------------------------------------------------------------


def read_foreign(text: str) -> Progress:
    """What a text in any shape says of how far something is."""
    lines = lines_of(text.removeprefix("\ufeff"))
    reading, below = _Reading(), [""]
    for line in reversed(lines[1:]):
        below.append(line if line.strip() else below[-1])
    for line, following in zip(lines, reversed(below), strict=True):
        reading.take(line, following)
    return reading.made()


class _Reading:
    """One text, line by line."""

    def __init__(self) -> None:
        self._part = "context"
        self._lists: dict[str, list[str]] = {"done": [], "left": [], "blockers": [], "next": []}
        """What is next is left, too: it is there twice."""
        self._texts: dict[str, list[str]] = {"goal": [], "next": [], "context": []}
        self._last: list[list[str]] = []
        """The lists that the line before has put something in: what is indented under it belongs to that."""
        self._blank = self._fenced = self._bulleted = self._short = self._in_bullet = False
        """What was before: an empty line, a fence; whether the part has bullets, is one line's, or one bullet's."""

    def take(self, line: str, following: str) -> None:
        """One more line."""
        if self._fenced or _FENCE.match(line):
            self._fenced ^= bool(_FENCE.match(line))
            self._keep(line)
        elif not line.strip():
            self._blank, self._last = True, []
            self._part = "context" if self._short else self._part
            self._keep("", "goal" if self._part == "goal" else "next" if self._part == "next" else "context")
        elif not self._opens(line, following):
            self._says(line)
            self._blank = False

    def _opens(self, line: str, following: str) -> bool:
        bullet = _BULLET.fullmatch(line)
        if bullet is not None and self._part != "context" and not self._in_bullet:
            return False
        opening = _opening(line if bullet is None else bullet[2], following)
        if opening is None or (bullet is not None and (opening.marked or known(opening.heading) is None)):
            return False
        it = known(opening.heading)
        self._part, self._last = it.part if it is not None else "context", []
        self._bulleted, self._in_bullet, self._blank = False, bullet is not None, False
        self._short = bool(opening.rest)
        if (it is None or not it.plain) and not (_MARKED.fullmatch(line) and opening.heading.casefold() == _TITLE):
            self._keep(line)
        if opening.rest:
            self._says(opening.rest)
        return True

    def _says(self, line: str) -> None:
        """A line of the part that it is in."""
        bullet = _BULLET.fullmatch(line)
        text = line.strip() if bullet is None else bullet[2].strip()
        box = None if self._part == "goal" and bullet is None else _box(text)
        if box is not None:
            self._bulleted = True
            self._item("done" if box[0] else "next" if self._part == "next" else "left", box[1])
        elif bullet is None and self._last and line[:1].isspace():
            for items in self._last:
                items[-1] += f" {text}"
        elif bullet is not None and self._part in (*_LISTS, "next"):
            self._bulleted = True
            self._item(self._part, text)
        else:
            self._plain(line, text)

    def _plain(self, line: str, text: str) -> None:
        """A line that is no item: what stands behind a list, or is labelled as something else, is not of it."""
        self._last = []
        if _RULE.fullmatch(line) and self._part != "context":
            return
        is_other = self._blank or self._part == "next" or _LABEL.fullmatch(text) is not None
        if self._bulleted and is_other and self._part != "goal":
            self._part = "context"
        if self._part in _LISTS:
            self._item(self._part, text)
        else:
            self._keep(line, self._part)

    def _item(self, part: str, text: str) -> None:
        lists = [self._lists["left"], self._lists["next"]] if part == "next" else [self._lists[part]]
        self._last = [] if _says_nothing(text) else lists
        for items in self._last:
            items.append(text)

    def _keep(self, line: str, part: str = "context") -> None:
        self._texts[part].append(line.rstrip())

    def made(self) -> Progress:
        """All of it; what is to be done first is the next action, when none is said."""
        goal, following, context = (_said(lines) for lines in self._texts.values())
        done, left, blockers, nexts = (tuple(map(one_line, items)) for items in self._lists.values())
        first = next(iter((*nexts, *left)), "")
        return Progress(
            goal=goal, done=done, left=left, blockers=blockers, next_action=following or first, context=context
        )


def _said(lines: Sequence[str]) -> str:
    text = "\n".join(_closed(lines)).strip()
    return "" if _says_nothing(text) else text


def _closed(lines: Sequence[str]) -> Iterator[str]:
    """Without the gaps where lines were taken for something else."""
    before = ""
    for line in lines:
        if line or before:
            yield line
        before = line
