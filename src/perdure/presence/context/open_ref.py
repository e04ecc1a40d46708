"""`agent.open(ref)`: reads content that was masked, shortened or summarized."""

from __future__ import annotations

from perdure.errors import RefNotFound, RunNotFound, WrongValue
from perdure.journal.lineage import events_of
from perdure.journal.objects import unpack
from perdure.kernel.engine import Engine
from perdure.kernel.protocol import Protocol, Read
from perdure.kernel.scope import current_frame
from perdure.memory.visible import get
from perdure.presence.context.context import transcript
from perdure.presence.context.parse import ParsedMessage, TextPart, ToolResultPart, parse_message
from perdure.presence.context.refs import MessageRef, parse
from perdure.presence.context.thread_context import messages_at
from perdure.run.core import RunCore, core_of
from perdure.run.data_view import view_of
from perdure.run.history import effective
from perdure.run.listing import require_run, summary_of
from perdure.run.writes import decode_written, read_all_messages

LineRange = tuple[int, int]


def open_pointer(engine: Engine, ref: str, lines: LineRange | None, find: str | None) -> Protocol[str]:
    """Return the text behind a pointer: all of it, a range of lines, or the lines that contain a text."""
    if lines is not None and not 1 <= lines[0] <= lines[-1]:
        raise WrongValue(f"lines={lines!r}: give the first and the last line, counted from 1, such as (200, 260)")
    wanted = parse(ref)
    if isinstance(wanted, str):
        return _select_lines((yield from get(engine, wanted)).text, lines, find)
    text: str = yield Read(_text, (engine, wanted))
    return _select_lines(text, lines, find)


def _text(engine: Engine, wanted: MessageRef) -> str:
    run = _find_enclosing_run(engine, wanted.run)
    messages = _read_open_messages(run, wanted) if run is not None else _read_stored_messages(engine, wanted)
    if not messages:
        raise RefNotFound(f"run {wanted.run!r} has no message {wanted.first}")
    if len(messages) > 1:
        return transcript(tuple(messages))
    return _render_message(messages[0])


def _render_message(message: ParsedMessage) -> str:
    """Return one message: the text of a tool result or of the message itself; a transcript if it has more parts."""
    parts = [part for part in message.parts if not isinstance(part, TextPart) or part.text]
    if all(isinstance(part, ToolResultPart) for part in parts) or all(isinstance(part, TextPart) for part in parts):
        return "\n".join(part.text for part in parts if isinstance(part, ToolResultPart | TextPart))
    return transcript((message,))


def _find_enclosing_run(engine: Engine, run_id: str) -> RunCore | None:
    """Return the enclosing run, which may have messages that are not stored yet."""
    frame = current_frame()
    while frame is not None and (frame.run.engine is not engine or frame.run.id != run_id):
        frame = frame.parent
    return core_of(frame) if frame is not None else None


def _read_open_messages(run: RunCore, wanted: MessageRef) -> list[ParsedMessage]:
    raw = [value for position, value in read_all_messages(run) if wanted.first <= position <= wanted.last]
    return [parse_message(decode_written(run, value)) for value in raw]


def _read_stored_messages(engine: Engine, wanted: MessageRef) -> list[ParsedMessage]:
    store = engine.store
    try:
        summary = summary_of(store, require_run(store, engine.name, wanted.run))
    except RunNotFound as error:
        if raw := messages_at(engine, wanted.run, wanted.first, wanted.last):
            return [parse_message(unpack(store, value)) for value in raw]
        raise RefNotFound(error.message) from error
    view = view_of(effective(events_of(store, summary.stream, fork=summary.origin > 0)))
    raw = [value for position, value in view.messages if wanted.first <= position <= wanted.last]
    return [parse_message(unpack(store, value)) for value in raw]


def _select_lines(text: str, lines: LineRange | None, find: str | None) -> str:
    if lines is None and find is None:
        return text
    numbered = list(enumerate(text.split("\n"), 1))
    first, last = lines or (1, len(numbered))
    there = numbered[first - 1 : last]
    if find is None:
        return "\n".join(line for _, line in there)
    return "\n".join(f"{number}: {line}" for number, line in there if find.casefold() in line.casefold())
