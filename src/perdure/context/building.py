"""A context is put together: sections get their shares, texts are cut to them, the conversation has what is left."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..errors import ContextTooSmall
from ..tokens import Tokens
from .conversation import Shown
from .layout import CONVERSATION, Slot, shared
from .masking import MESSAGE_TOKENS, size_exactly
from .said import ANTHROPIC, OPENAI, Said, Text
from .shown import Context, Dropped, Section, Sections, transcript
from .talk import Talk

STEPS = ((8, 0.25), (4, 0.5), (2, 0.75))
"""A conversation of up to an eighth of the budget counts as a fourth of it, one of up to a fourth as a half, one of up
to a half as three fourths, and a longer one as all: what others get from it changes three times, not with each message.
"""

GRAIN = 24
"""The room of the conversation is a multiple of this part of the budget: a longer log must not move it each time."""

CHANGES = (0.05, 0.12, 0.25, 0.5)
"""What changes from turn to turn takes one of these parts of the budget: a log that grows, or other memories, must not
move the conversation each time."""

BEFORE = "The program has put this here for you to know. The user has not said it."


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


class Wanted(msgspec.Struct, frozen=True):
    """What a context is to be made of."""

    budget: int
    slots: tuple[Slot, ...]
    pieces: tuple[Piece, ...] = ()
    estimated: bool = True


def compose(talk: Talk, wanted: Wanted) -> Context:
    """A context of a conversation that has been heard, and of the pieces."""
    budget, count = wanted.budget, talk.count
    own = [_Filling(slot, wanted.pieces, count) for slot in wanted.slots]
    wants = [_rounded(talk, budget) if it.is_talk else it.wanted for it in own]
    around = MESSAGE_TOKENS * 2 + count(_changing([BEFORE])) if sum(it.wanted for it in own) else 0
    for filling, room in zip(own, shared(max(0, budget - around), wanted.slots, wants), strict=True):
        filling.fill(room)
    system = "\n\n".join(it.shown for it in own if it.text and it.slot.stable)
    changing = _changing([it.shown for it in own if it.text and not it.slot.stable])
    before = _size("system", system, count)
    beside = _size("user", changing, count)
    shown = Shown(talk, _room(budget, before, beside)) if any(it.is_talk for it in own) else None
    if shown is not None and not shown.window.fits:
        raise _too_small(talk, before + beside + shown.window.cost, budget)
    return _context(wanted, own, shown, system, changing, before + beside)


def _changing(texts: Sequence[str]) -> str:
    return "\n\n".join([f"<context>\n{BEFORE}", *texts, "</context>"]) if texts else ""


def _size(role: str, text: str, count: Tokens) -> int:
    return size_exactly(Said(role, (Text(text),)), count) if text else 0


def _rounded(talk: Talk, budget: int) -> int:
    """How much the conversation wants, in large steps."""
    return next((int(budget * share) for part, share in STEPS if talk.tokens <= budget // part), budget)


def _room(budget: int, before: int, beside: int) -> int:
    """What the conversation has: the budget without the others, in grains."""
    grain = max(1, budget // GRAIN)
    reserved = next((int(budget * share) for share in CHANGES if beside <= int(budget * share)), beside)
    roomy = budget - before - (reserved if beside else 0)
    left = roomy if roomy >= budget // 4 else budget - before - beside
    return left // grain * grain if left >= 4 * grain else max(0, left)


def _too_small(talk: Talk, needed: int, budget: int) -> ContextTooSmall:
    pinned = sum(talk.heard[place].tokens for unit in talk.units if unit.pinned for place in unit.messages)
    return ContextTooSmall(
        f"what must stay takes {needed:,} tokens, {pinned:,} of them pinned messages, and the budget is {budget:,}",
        hint="give a larger budget=, or unpin messages with run.messages.unpin(index)",
    )


class _Filling:
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
        """Take as much as there is room for; of several pieces, those that come first."""
        self.room, left, shown = room, room - self._heading, list[str]()
        for piece, size in zip(self._pieces, self._sizes, strict=True):
            kept, used = (_titled(piece), size) if size <= left else self._cut(piece, left)
            left -= used
            shown += [kept] if kept else []
            if used < size:
                why = "cut to the room of its section" if kept else "no room left in its section"
                self.dropped.append(Dropped(piece.name or self.slot.title, why, size - used))
        self.text = ("\n" if any(it.whole for it in self._pieces) else "\n\n").join(shown)
        self.tokens = self._count(self.shown) if shown else 0

    def _cut(self, piece: Piece, room: int) -> tuple[str, int]:
        """As many whole lines as fit, and one that says what is missing."""
        lines = piece.text.strip().split("\n")
        low, high = 0, 0 if piece.whole else len(lines) - 1
        while low < high:  # the text grows with its lines: the last number that fits is found by halving
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._count(_part(piece, lines, middle)) < room else (low, middle - 1)
        text = _part(piece, lines, low) if low else ""
        return (text, self._count(text) + 1) if text else ("", 0)


def _titled(piece: Piece) -> str:
    text = piece.text.strip()
    return f"<!-- {piece.name} -->\n{text}" if piece.name else text


def _part(piece: Piece, lines: list[str], kept: int) -> str:
    said = f"[... {len(lines) - kept} more lines{f' are in {piece.name}' if piece.name else ''}]"
    part = [said, *lines[len(lines) - kept :]] if piece.newest else [*lines[:kept], said]
    return _titled(msgspec.structs.replace(piece, text="\n".join(part)))


def _context(
    wanted: Wanted, own: Sequence[_Filling], shown: Shown | None, system: str, changing: str, apart: int
) -> Context:
    said = list(shown.said) if shown is not None else []
    place = shown.place if shown is not None else 0
    if changing:
        said.insert(place, Said("user", (Text(changing),)))
    sections, dropped = list[Section](), list[Dropped]()
    for it in own:
        if it.is_talk and shown is not None:
            sections.append(_section(it, shown.window.room, shown.tokens, shown.wanted, transcript(shown.said)))
            dropped += shown.dropped
        else:
            sections.append(_section(it, it.room, it.tokens, it.wanted, it.text))
            dropped += it.dropped
    shapes = {one.shape for one in said}
    return Context(
        wanted.budget,
        Sections(sections),
        tuple(dropped),
        tokens=apart + (shown.tokens if shown is not None else 0),
        system=system,
        said=tuple(said),
        stable=place if changing else len(said),
        steps=shown.window.steps if shown is not None else 0,
        shape=ANTHROPIC if ANTHROPIC in shapes and OPENAI not in shapes else OPENAI,
        estimated=wanted.estimated,
    )


def _section(it: _Filling, room: int, tokens: int, wanted: int, text: str) -> Section:
    whole = wanted if it.is_talk or it.dropped else tokens
    return Section(it.slot.name, it.slot.title, it.slot.share, room, tokens, whole, text)
