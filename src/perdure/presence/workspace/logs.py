"""The daily log: `agent.log(text)` appends an event, and the file of the day shows it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.data.events.append import append
from perdure.data.events.positions import (
    BEGINNING,
    END,
    EventPosition,
    find_position_at,
    parse_token,
    read_settled_end,
    resolve_position,
)
from perdure.data.events.read import Event, EventReader, book_of
from perdure.data.events.schemas import kinds_of
from perdure.errors import ValueTooLarge, WrongType, WrongValue
from perdure.kernel.protocol import Protocol
from perdure.memory.arguments import check_name, parse_trust
from perdure.presence.handoff import format_in_brackets
from perdure.presence.workspace.documents import append_lines
from perdure.presence.workspace.layout import day_of, log_of
from perdure.records.memories import TRUSTED
from perdure.values.clock import moment
from perdure.values.limits import EVENTS_OF_PAGE_MAX, LOG_CHARACTERS_MAX
from perdure.values.lines import lines_of

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

KIND = "perdure:log"


def log(engine: Engine, text: str, trust: float | str | None = None, source: str | None = None) -> Protocol[None]:
    """Append to the log of the day. In a step it is committed with the step."""
    if not isinstance(text, str):
        raise WrongType(f"the text of a log entry must be a str, not {text!r}")
    if not text.strip():
        raise WrongValue("a log entry needs a text")
    if len(text) > LOG_CHARACTERS_MAX:
        raise ValueTooLarge(f"a log entry has at most {LOG_CHARACTERS_MAX} characters, not {len(text)}")
    said: dict[str, Any] = {"text": text}
    said |= {} if trust is None else {"trust": parse_trust(trust)}
    said |= {} if source is None else {"source": check_name(source, "source")}
    yield from append(engine, [kinds_of(engine).convert_event(KIND, said)])


class LogUpdate(msgspec.Struct, frozen=True):
    """Log lines that are not in the files yet."""

    lines: dict[str, str]
    """By file, the lines to append."""
    upto: str
    """The position and time in milliseconds of the last one."""


def read_logged_since(engine: Engine, upto: str, day: date | None = None) -> LogUpdate:
    """Return what was logged after a position, and not before `day` if given.

    Events that others may still precede are left for later.
    """
    book, lines = book_of(engine), dict[str, str]()
    if book is None:
        return LogUpdate(lines, upto)
    after = _place_of(book, upto) if upto else BEGINNING
    if day is not None:
        after = max(after, find_position_at(book.store, book.owner, datetime.combine(day, time()).astimezone()))
    while rows := book.rows((KIND,), 0, after, read_settled_end(book.store), EVENTS_OF_PAGE_MAX):
        for event in book.events(rows, typed=False):
            path = log_of(_local(event.at).date())
            lines[path] = lines.get(path, "") + f"- {_local(event.at):%H:%M} {_parse_event(event)}\n"
        after = EventPosition(*rows[-1].position)
        upto = f"{after.token} {rows[-1].at}"
    return LogUpdate(lines, upto)


def _place_of(book: EventReader, upto: str) -> EventPosition:
    """Return the current position of an event. After a move the numbers differ, but the times do not."""
    token, _, at = upto.partition(" ")
    position = resolve_position(book.store, book.owner, parse_token(token))
    if (int(at),) in book.store.read("has_event", (book.owner, *position)):
        return position
    since = find_position_at(book.store, book.owner, moment(int(at)))
    rows = book.rows((KIND,), 0, since, END, EVENTS_OF_PAGE_MAX)
    same = [row for row in rows if row.at == int(at)]
    return (
        EventPosition(*same[-1].position)
        if same
        else find_position_at(book.store, book.owner, moment(int(at)), after=True)
    )


class LogLine(msgspec.Struct, frozen=True):
    """A logged text, as the file of the day shows it after the time."""

    text: str
    trust: float | None
    """Its trust; None if it was not stated."""
    source: str
    origin: str
    """The trust and source as shown in the file."""
    of_run: str

    def __str__(self) -> str:
        return f"{self.of_run}{self.origin}{self.text}"


def _parse_event(event: Event) -> LogLine:
    said: dict[str, Any] = event.data if isinstance(event.data, dict) else {"text": str(event.data)}
    trust, source = said.get("trust"), str(said.get("source", ""))
    parts = ["untrusted"] if trust is not None and trust < TRUSTED else []
    parts += [f"from {format_in_brackets(source)}"] if source else []
    # Continuation lines are indented, so that they stay part of their item.
    text = "\n  ".join(lines_of(str(said.get("text", "")).strip()))
    of_run = f"[{' '.join(event.run.split())}] " if event.run else ""
    return LogLine(text, trust, source, f"({', '.join(parts)}) " if parts else "", of_run)


def read_logged_on(engine: Engine, day: date) -> Iterator[LogLine]:
    """Yield what was logged on a day, or the day before or after it: the time zone is unknown."""
    book = book_of(engine)
    if book is None:
        return
    around = (datetime.combine(day + timedelta(days=days), time(), UTC) for days in (-1, 2))
    after, to = (find_position_at(book.store, book.owner, at) for at in around)
    while rows := book.rows((KIND,), 0, after, to, EVENTS_OF_PAGE_MAX):
        yield from map(_parse_event, book.events(rows, typed=False))
        after = EventPosition(*rows[-1].position)


def _local(at: datetime) -> datetime:
    """Return the local time: people search by their own days."""
    return at.astimezone()


def today(engine: Engine) -> date:
    """Return the current local day."""
    return _local(moment(engine.store.clock.wall_ms())).date()


def append_log_lines(before: str | None, path: str, lines: str) -> str:
    """Append lines to the log of a day."""
    if before is None:
        day = day_of(path)
        before = f"# {day.isoformat() if day is not None else path}\n\n"
    return append_lines(before, lines)
