"""Renders a conversation within a budget: pinned and recent turns, older ones masked, the oldest summarized."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from perdure.presence.context.context import DroppedContent
from perdure.presence.context.mask import MESSAGE_TOKENS, size_exactly
from perdure.presence.context.measure import MeasuredMessage, first_line
from perdure.presence.context.parse import ParsedMessage, TextPart
from perdure.presence.context.provider_formats import complete_turn
from perdure.presence.context.refs import ref_to
from perdure.presence.context.turns import Turns, make_heading
from perdure.presence.context.window import ContextWindow

FIRST_CHARACTERS = 400
"""Maximum length of the first user message in a summary."""


class ConversationView:
    """The messages of a conversation that fit into a number of tokens."""

    def __init__(self, talk: Turns, room: int) -> None:
        self._talk = talk
        self.window: ContextWindow = talk.window(room)
        self.dropped: list[DroppedContent] = []
        self.said: tuple[ParsedMessage, ...] = ()
        self.numbers: tuple[int, ...] = ()
        """The numbers of the messages that are shown whole; -1 of the others."""
        self._whole_ones: dict[int, tuple[ParsedMessage, int]] = {}
        self.tokens = 0
        self.place = 0
        """Where changing content is inserted: before the last user message, or at the recent part if that is later."""
        if self.window.fits:
            self._show()
        self.wanted = max(talk.tokens, self.tokens)

    def _show(self) -> None:
        talk, window, said = self._talk, self.window, list[ParsedMessage]()
        summary = window.cache_summary(self._summary) if window.cut else None
        # Insert the summary where the messages were, after the leading instructions.
        gone = next((place for place, unit in enumerate(talk.units[: window.cut]) if not window.is_never_cut(unit)), 0)
        last_words = (place for place in reversed(range(len(talk.units))) if talk.units[place].role == "user")
        here = max(window.mask, next(last_words, 0))
        for place in (*window.kept, *range(window.cut, len(talk.units))):
            if summary is not None and place > gone:
                said.append(self._make_summary_message(*summary))
                summary = None
            if place <= here:
                self.place = len(said)
            unit = talk.units[place]
            turn = [
                self._show_message(place, window.is_kept(unit, talk.heard[index]), index) for index in unit.messages
            ]
            said += self._show_turn(turn, last=place == len(talk.units) - 1)
        if summary is not None:
            said.append(self._make_summary_message(*summary))
        self.place = len(said) if here >= len(talk.units) else self.place
        self.said = tuple(said)
        self.numbers = tuple(self._whole_ones.get(id(one), (one, -1))[1] for one in said)

    def _make_summary_message(self, summary: ParsedMessage, dropped: DroppedContent, tokens: int) -> ParsedMessage:
        self.dropped.append(dropped)
        self.tokens += tokens
        return summary

    def _show_turn(self, turn: Sequence[tuple[ParsedMessage, int]], *, last: bool) -> list[ParsedMessage]:
        """Return a turn in a valid provider form, and count its tokens."""
        sizes = {id(one): size for one, size in turn}
        said = complete_turn([one for one, _ in turn], last=last)
        self.tokens += sum(sizes.get(id(one)) or size_exactly(one, self._talk.count) for one in said)
        return said

    def _show_message(self, place: int, stays: bool, index: int) -> tuple[ParsedMessage, int]:
        talk, room, one = self._talk, self.window.sizes[index], self._talk.heard[index]
        if stays or (place >= self.window.mask and one.tokens <= room):
            return self._known(one, one.load_message(talk.load)), one.tokens
        if room < one.masked_tokens:
            return self._note_shortened(one, one.shrink(room, talk.load, talk.count), "too long for the budget")
        if place < self.window.mask or room <= one.masked_tokens:
            why = "an older turn, masked" if place < self.window.mask else "too long, masked"
            return self._note_shortened(one, (one.masked, one.masked_tokens), why)
        return self._note_shortened(one, one.clip(room, talk.load, talk.count), "too long, shortened")

    def _note_shortened(
        self, one: MeasuredMessage, short: tuple[ParsedMessage, int], why: str
    ) -> tuple[ParsedMessage, int]:
        if one.tokens > short[1]:
            self.dropped.append(DroppedContent(f"message {one.item.position}", why, one.tokens - short[1], one.ref))
        elif short[0] == one.load_message(self._talk.load):
            self._known(one, short[0])
        return short

    def _known(self, one: MeasuredMessage, message: ParsedMessage) -> ParsedMessage:
        """Note that a message is shown whole. A summary is none: its number is that of the first one it covers."""
        if one.item.covers is None:
            self._whole_ones[id(message)] = message, one.item.position
        return message

    def _summary(self) -> tuple[ParsedMessage, DroppedContent, int] | None:
        """Summarize the messages that are no longer shown."""
        talk, window = self._talk, self.window
        units = (unit for unit in talk.units[: window.cut] if not window.is_never_cut(unit))
        gone = [talk.heard[index] for unit in units for index in unit.messages]
        if not gone:
            return None
        ref = ref_to(talk.run, *_range(gone))
        said = ParsedMessage("user", (TextPart(summary_of(talk, gone, ref, window.summary - MESSAGE_TOKENS)),))
        left_out = sum(message.tokens for message in gone)
        dropped = DroppedContent(f"{len(gone)} messages", "older turns, summarised", left_out, ref)
        return said, dropped, size_exactly(said, talk.count)


def summary_of(talk: Turns, gone: Sequence[MeasuredMessage], ref: str, room: int) -> str:
    """Summarize messages in a few lines without a model: the first request, the latest lines, and a pointer to all."""
    head = make_heading(len(gone), ref)
    first = next(
        (
            message
            for message in gone
            if message.item.covers is not None or (message.role == "user" and not message.results)
        ),
        None,
    )
    began, left = _take_fitting(
        _find_task_lines(talk, first) if first is not None else (), room - talk.count(head), talk
    )
    rest = [message for message in gone if message is not first or message.item.covers is not None]
    latest = (
        line for message in reversed(rest) for line in reversed(_lines(talk, message)) if not line.startswith(_BEGAN)
    )
    return "\n".join([head, *began, *reversed(_take_fitting(latest, left, talk)[0])])


_BEGAN = "- It began with:"


def _find_task_lines(talk: Turns, first: MeasuredMessage) -> list[str]:
    """Return the first user message, mostly the task; an earlier summary already has it."""
    if first.item.covers is not None:
        return [line for line in _lines(talk, first) if line.startswith(_BEGAN)]
    return [f"{_BEGAN} {first_line(first.load_message(talk.load).text, FIRST_CHARACTERS)}"]


def _lines(talk: Turns, message: MeasuredMessage) -> list[str]:
    """Return a message as one line. A summary already consists of lines."""
    return [message.line] if message.item.covers is None else message.load_message(talk.load).text.split("\n")[1:]


def _take_fitting(lines: Iterable[str], room: int, talk: Turns) -> tuple[list[str], int]:
    """Return the first lines that fit, and the room that is left."""
    shown = list[str]()
    for line in lines:
        size = talk.count(line) + 1
        if size > room:
            break
        shown.append(line)
        room -= size
    return shown, room


def _range(gone: Sequence[MeasuredMessage]) -> tuple[int, int]:
    numbers = [number for message in gone for number in (message.item.covers or (message.item.position,))]
    return min(numbers), max(numbers)
