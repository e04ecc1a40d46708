"""A context is put together: sections get their shares and are filled, the conversation has what is left."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..errors import ContextTooSmall
from ..tokens import Tokens
from .conversation import Shown
from .filling import Filling, Piece
from .layout import Slot, shared
from .masking import MESSAGE_TOKENS, size_exactly
from .said import ANTHROPIC, OPENAI, Said, Text
from .shapes import BEGINS
from .shown import Context, Dropped, Section, Sections, transcript
from .talk import Talk

STEPS = ((64, 1 / 32), (32, 1 / 16), (16, 1 / 8), (8, 1 / 4), (4, 1 / 2), (2, 3 / 4))
"""A conversation of up to an eighth of the budget counts as a fourth of it, one of up to a fourth as a half, and so on,
and one of more than a half as all: what others get from it changes when it has doubled, not with each message. A small
one leaves nearly all to the others; to take it back then costs little, as there is not much behind it.
"""

PARTS = (32, 16, 8, 4, 2)
"""A section that changes from turn to turn counts as one of these parts of the budget: a line more in a log must not
move where a long document is cut, which stands at the beginning."""

GRAIN = 24
"""The room of the conversation is a multiple of this part of the budget: a longer log must not move it each time."""

CHANGES = (0.05, 0.12, 0.25, 0.5)
"""What changes from turn to turn takes one of these parts of the budget: a log that grows, or other memories, must not
move the conversation each time."""

BEFORE = "The program has put this here for you to know. The user has not said it."


class Wanted(msgspec.Struct, frozen=True):
    """What a context is to be made of."""

    budget: int
    slots: tuple[Slot, ...]
    pieces: tuple[Piece, ...] = ()
    estimated: bool = True


def compose(talk: Talk, wanted: Wanted) -> Context:
    """A context of a conversation that has been heard, and of the pieces."""
    budget, count = wanted.budget, talk.count
    own = [Filling(slot, wanted.pieces, count) for slot in wanted.slots]
    around = MESSAGE_TOKENS * 2 + count(_changing([BEFORE])) if sum(it.wanted for it in own) else 0
    wants = [_rounded(it, talk, budget) for it in own]
    for filling, room in zip(own, shared(max(0, budget - around), wanted.slots, wants), strict=True):
        filling.fill(room)
    system = "\n\n".join(it.shown for it in own if it.text and it.slot.stable)
    changing = _changing([it.shown for it in own if it.text and not it.slot.stable])
    before = _size("system", system, count) + _size("user", _opening(talk), count)
    beside = _size("user", changing, count)
    shown = _shown(talk, budget, before, beside) if any(it.is_talk for it in own) else None
    return _context(wanted, own, shown, system, changing, before + beside)


def _opening(talk: Talk) -> str:
    """What stands before a conversation that the assistant begins, in one of the shapes."""
    first = next((one.role for one in talk.heard if one.role != "system"), "")
    return BEGINS if first == "assistant" else ""


def _changing(texts: Sequence[str]) -> str:
    return "\n\n".join([f"<context>\n{BEFORE}", *texts, "</context>"]) if texts else ""


def _size(role: str, text: str, count: Tokens) -> int:
    return size_exactly(Said(role, (Text(text),)), count) if text else 0


def _rounded(it: Filling, talk: Talk, budget: int) -> int:
    """How much a section wants; of what grows from turn to turn in large steps, or others would change with it."""
    if it.is_talk:
        talked = talk.wanted + _size("user", _opening(talk), talk.count)
        return next((int(budget * share) for part, share in STEPS if talked <= budget // part), budget)
    if it.slot.stable or not it.wanted:
        return it.wanted
    return next((budget // part for part in PARTS if it.wanted <= budget // part), it.wanted)


def _shown(talk: Talk, budget: int, before: int, beside: int) -> Shown:
    shown = Shown(talk, _room(budget, before, beside))
    if not shown.window.fits:  # it may when it has all that there is: nobody is refused for the sake of a grain
        shown = Shown(talk, max(0, budget - before - beside))
    if not shown.window.fits:
        raise _too_small(talk, before + beside, shown.window.cost, budget)
    return shown


def _room(budget: int, before: int, beside: int) -> int:
    """What the conversation has: the budget without the others, in grains."""
    grain = max(1, budget // GRAIN)
    reserved = next((int(budget * share) for share in CHANGES if beside <= int(budget * share)), beside)
    roomy = budget - before - (reserved if beside else 0)
    left = roomy if roomy >= budget // 4 else budget - before - beside
    return left // grain * grain if left >= 4 * grain else max(0, left)


def _too_small(talk: Talk, beside: int, said: int, budget: int) -> ContextTooSmall:
    ruled, pinned = _kept(talk, ruled=True), _kept(talk, ruled=False)
    parts = [
        (said - ruled - pinned, "messages as short as they can be", ""),
        (beside, "documents and memories", ', or leave them out with layout=["conversation"]'),
        (ruled, "system messages of the conversation", ", or shorten the system messages"),
        (pinned, "pinned messages", ", or unpin messages with run.messages.unpin(index)"),
    ]
    told = "".join(f", {tokens:,} of them {what}" for tokens, what, _ in parts if tokens > 0)
    also = "".join(remedy for tokens, _, remedy in parts if tokens > 0)
    return ContextTooSmall(
        f"what must stay takes {beside + said:,} tokens{told}, and the budget is {budget:,}",
        hint=f"give a larger budget={also}",
    )


def _kept(talk: Talk, *, ruled: bool) -> int:
    """The tokens of instructions, which stay by themselves, or of what somebody has pinned."""
    units = (unit for unit in talk.units if unit.pinned and (unit.role == "system") is ruled)
    heard = (talk.heard[place] for unit in units for place in unit.messages)
    return sum(one.tokens for one in heard if one.pinned)


def _context(
    wanted: Wanted, own: Sequence[Filling], shown: Shown | None, system: str, changing: str, apart: int
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


def _section(it: Filling, room: int, tokens: int, wanted: int, text: str) -> Section:
    whole = wanted if it.is_talk or it.dropped else tokens
    return Section(it.slot.name, it.slot.title, it.slot.share, room, tokens, whole, text)
