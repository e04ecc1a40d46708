"""Composes a context: fills the sections by their shares, and gives the rest of the budget to the conversation."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perdure.errors import ContextTooSmall
from perdure.presence.context.context import Context, ContextSection, ContextSections, DroppedContent, transcript
from perdure.presence.context.conversation import ConversationView
from perdure.presence.context.fill import SectionFill, SectionText
from perdure.presence.context.layout import SectionSlot, share_budget
from perdure.presence.context.mask import MESSAGE_TOKENS, size_exactly
from perdure.presence.context.parse import ANTHROPIC, OPENAI, ParsedMessage, TextPart
from perdure.presence.context.provider_formats import BEGINS
from perdure.presence.context.turns import Turns
from perdure.values.tokens import TokenCounter

STEPS = ((64, 1 / 32), (32, 1 / 16), (16, 1 / 8), (8, 1 / 4), (4, 1 / 2), (2, 3 / 4))
"""Rounds up: a conversation of up to an eighth of the budget counts as a fourth, of more than a half as all of it.

The shares of other sections then change only when the conversation has doubled, not with each message.
"""

PARTS = (32, 16, 8, 4, 2)
"""Rounds a changing section up to a part of the budget: one more log line must not change the prompt prefix."""

GRAIN = 24
"""The room of the conversation is a multiple of this part of the budget, so that a growing log rarely moves it."""

CHANGES = (0.05, 0.12, 0.25, 0.5)
"""Changing sections together take one of these parts of the budget, so that they rarely move the conversation."""

BEFORE = "The program has put this here for you to know. The user has not said it."


class ContextRequest(msgspec.Struct, frozen=True):
    """What to compose a context from."""

    budget: int
    slots: tuple[SectionSlot, ...]
    pieces: tuple[SectionText, ...] = ()
    estimated: bool = True


def compose(talk: Turns, wanted: ContextRequest) -> Context:
    """Compose a context from a conversation and the texts of the sections."""
    budget, count = wanted.budget, talk.count
    own = [SectionFill(slot, wanted.pieces, count) for slot in wanted.slots]
    around = (
        MESSAGE_TOKENS * 2 + count(_join_changing_sections([BEFORE])) if sum(section.wanted for section in own) else 0
    )
    wants = [_round_up(section, talk, budget) for section in own]
    for filling, room in zip(own, share_budget(max(0, budget - around), wanted.slots, wants), strict=True):
        filling.fill(room)
    system = "\n\n".join(section.shown for section in own if section.text and section.slot.stable)
    changing = _join_changing_sections([section.shown for section in own if section.text and not section.slot.stable])
    before = _size("system", system, count) + _size("user", _make_opening(talk), count)
    beside = _size("user", changing, count)
    shown = _view_conversation(talk, budget, before, beside) if any(section.is_talk for section in own) else None
    return _context(wanted, own, shown, system, changing, before + beside)


def _make_opening(talk: Turns) -> str:
    """Return the opening user message for a conversation that the assistant begins, for formats that require one."""
    first = next((one.role for one in talk.heard if one.role != "system"), "")
    return BEGINS if first == "assistant" else ""


def _join_changing_sections(texts: Sequence[str]) -> str:
    return "\n\n".join([f"<context>\n{BEFORE}", *texts, "</context>"]) if texts else ""


def _size(role: str, text: str, count: TokenCounter) -> int:
    return size_exactly(ParsedMessage(role, (TextPart(text),)), count) if text else 0


def _round_up(section: SectionFill, talk: Turns, budget: int) -> int:
    """Return how much a section wants. Changing sections are rounded up, so that others stay the same."""
    if section.is_talk:
        talked = talk.wanted + _size("user", _make_opening(talk), talk.count)
        return next((int(budget * share) for part, share in STEPS if talked <= budget // part), budget)
    if section.slot.stable or not section.wanted:
        return section.wanted
    return next((budget // part for part in PARTS if section.wanted <= budget // part), section.wanted)


def _view_conversation(talk: Turns, budget: int, before: int, beside: int) -> ConversationView:
    shown = ConversationView(talk, _room(budget, before, beside))
    if not shown.window.fits:  # try again with all that is left, without rounding
        shown = ConversationView(talk, max(0, budget - before - beside))
    if not shown.window.fits:
        raise _too_small_error(talk, before + beside, shown.window.cost, budget)
    return shown


def _room(budget: int, before: int, beside: int) -> int:
    """Return the room of the conversation: the rest of the budget, rounded down."""
    grain = max(1, budget // GRAIN)
    reserved = next((int(budget * share) for share in CHANGES if beside <= int(budget * share)), beside)
    roomy = budget - before - (reserved if beside else 0)
    left = roomy if roomy >= budget // 4 else budget - before - beside
    return left // grain * grain if left >= 4 * grain else max(0, left)


def _too_small_error(talk: Turns, beside: int, said: int, budget: int) -> ContextTooSmall:
    ruled, pinned = _count_kept_tokens(talk, ruled=True), _count_kept_tokens(talk, ruled=False)
    parts = [
        (said - ruled - pinned, "messages in their shortest form", ""),
        (beside, "documents and memories", ', or leave them out with layout=["conversation"]'),
        (ruled, "system messages of the conversation", ", or shorten the system messages"),
        (pinned, "pinned messages", ", or unpin messages with run.messages.unpin(index)"),
    ]
    told = "".join(f", {tokens:,} of them {what}" for tokens, what, _ in parts if tokens > 0)
    also = "".join(remedy for tokens, _, remedy in parts if tokens > 0)
    return ContextTooSmall(
        f"the content that must stay takes {beside + said:,} tokens{told}, but the budget is {budget:,}",
        hint=f"give a larger budget={also}",
    )


def _count_kept_tokens(talk: Turns, *, ruled: bool) -> int:
    """Return the tokens of system messages, which always stay, or of pinned messages."""
    units = (unit for unit in talk.units if unit.pinned and (unit.role == "system") is ruled)
    heard = (talk.heard[place] for unit in units for place in unit.messages)
    return sum(one.tokens for one in heard if one.pinned)


def _context(
    wanted: ContextRequest,
    own: Sequence[SectionFill],
    shown: ConversationView | None,
    system: str,
    changing: str,
    apart: int,
) -> Context:
    said, numbers = (list(shown.said), list(shown.numbers)) if shown is not None else ([], [])
    place = shown.place if shown is not None else 0
    if changing:
        said.insert(place, ParsedMessage("user", (TextPart(changing),)))
        numbers.insert(place, -1)
    sections, dropped = list[ContextSection](), list[DroppedContent]()
    for section in own:
        if section.is_talk and shown is not None:
            sections.append(_section(section, shown.window.room, shown.tokens, shown.wanted, transcript(shown.said)))
            dropped += shown.dropped
        else:
            sections.append(_section(section, section.room, section.tokens, section.wanted, section.text))
            dropped += section.dropped
    shapes = {one.shape for one in said}
    return Context(
        wanted.budget,
        ContextSections(sections),
        tuple(dropped),
        tokens=apart + (shown.tokens if shown is not None else 0),
        system=system,
        said=tuple(said),
        numbers=tuple(numbers),
        changing=place if changing else -1,
        stable=place if changing else len(said),
        steps=shown.window.steps if shown is not None else 0,
        shape=ANTHROPIC if ANTHROPIC in shapes and OPENAI not in shapes else OPENAI,
        estimated=wanted.estimated,
    )


def _section(section: SectionFill, room: int, tokens: int, wanted: int, text: str) -> ContextSection:
    whole = wanted if section.is_talk or section.dropped else tokens
    return ContextSection(section.slot.name, section.slot.title, section.slot.share, room, tokens, whole, text)
