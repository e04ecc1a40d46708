"""How a context is recorded, and rebuilt on replay without deciding anything again.

The record has every text that is shown, and where it was cut. Of a message that is shown whole it has the number: the
message itself is in the journal already. So a replay shows the same messages whatever has come since: another memory,
another tokenizer, other rules for cutting.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from perdure.presence.context.context import Context, ContextSection, ContextSections, DroppedContent, transcript
from perdure.presence.context.layout import CONVERSATION
from perdure.presence.context.parse import (
    OpaquePart,
    ParsedMessage,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    parse_message,
)
from perdure.presence.context.thread_context import PER_TURN, TurnThread, earlier_message, prepend_earlier
from perdure.run.conversation import Conversation

CONTEXT = "context"
"""The key of the recorded values that say what contexts were made of."""
_PARTS = (TextPart, ToolCallPart, ToolResultPart, OpaquePart)
"""The order is the stored format."""

NumberedReader = Callable[[int], ParsedMessage | None]
"""Reads a message by its number; None if it was erased."""


def as_record(shown: Context) -> dict[str, Any]:
    """Return the record of a context."""
    sections = [list(msgspec.structs.astuple(section)) for section in shown.sections]
    for section in sections:
        section[-1] = "" if section[0] == CONVERSATION else section[-1]  # it follows from the messages
    return {
        "budget": shown.budget,
        "tokens": shown.tokens,
        "system": shown.system,
        "sections": sections,
        "dropped": [list(msgspec.structs.astuple(one)) for one in shown.dropped],
        "said": [number if _is_unique(number) else _packed(one) for one, number in shown.numbered],
        "changing": shown.changing,
        "stable": shown.stable_said,
        "steps": shown.steps,
        "shape": shown.shape,
        "estimated": shown.estimated,
    }


def _is_unique(number: int) -> bool:
    """Whether a message is found by its number: the last messages of a very long turn share one."""
    return number >= 0 and number % PER_TURN != PER_TURN - 1


def rebuilt_in(
    thread: TurnThread | None, own: Conversation, record: dict[str, Any], unpack: Callable[[bytes], Any]
) -> Context | None:
    """Return the recorded context of a run or a turn; None if a message that it has shown whole was erased since."""
    speech = own if thread is None else prepend_earlier(thread, own, thread.number)
    values = {one.position: one.value for one in speech.list_visible()}

    def read(number: int) -> ParsedMessage | None:
        value = values.get(number)
        if value is None and thread is not None:
            value = earlier_message(thread, number)
        return parse_message(unpack(value)) if value is not None else None

    return rebuilt(record, read)


def rebuilt(record: dict[str, Any], read: NumberedReader) -> Context | None:
    """Return the recorded context; None if one of its messages was erased since."""
    said = [read(one) if isinstance(one, int) else _unpacked(one) for one in record["said"]]
    whole = [one for one in said if one is not None]
    if len(whole) < len(said):
        return None
    changing = record["changing"]
    talk = transcript(tuple(one for place, one in enumerate(whole) if place != changing))
    sections = [ContextSection(*one) for one in record["sections"]]
    return Context(
        record["budget"],
        ContextSections(
            msgspec.structs.replace(one, text=talk) if one.name == CONVERSATION else one for one in sections
        ),
        tuple(DroppedContent(*one) for one in record["dropped"]),
        tokens=record["tokens"],
        system=record["system"],
        said=tuple(whole),
        numbers=tuple(one if isinstance(one, int) else -1 for one in record["said"]),
        changing=changing,
        stable=record["stable"],
        steps=record["steps"],
        shape=record["shape"],
        estimated=record["estimated"],
    )


def _packed(message: ParsedMessage) -> list[Any]:
    parts = [[_PARTS.index(type(part)), *msgspec.structs.astuple(part)] for part in message.parts]
    return [message.role, parts, message.shape, message.raw]


def _unpacked(packed: Sequence[Any]) -> ParsedMessage:
    role, parts, shape, raw = packed
    return ParsedMessage(role, tuple(_PARTS[kind](*fields) for kind, *fields in parts), shape, raw)
