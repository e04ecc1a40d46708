"""The daily log: `agent.log(text)` notes an event, and the file of the day shows it."""

from __future__ import annotations

from datetime import date, datetime, time
from typing import TYPE_CHECKING

import msgspec

from ..clock import moment
from ..errors import ValueTooLarge
from ..events.positions import BEGINNING, END, Position, at_time, placed, read_token, settled_end
from ..events.reading import Book, Event, book_of
from ..events.writing import append
from ..limits import EVENTS_OF_PAGE_MAX, LOG_CHARACTERS_MAX
from ..run.requests import Protocol
from .layout import day_of, log_of

if TYPE_CHECKING:
    from ..engine import Engine

KIND = "perdure:log"


def log(engine: Engine, text: str) -> Protocol[None]:
    """Note something in the log of the day. In a step it lands with the step."""
    if not isinstance(text, str):
        raise TypeError(f"a log has text, not {text!r}")
    if len(text) > LOG_CHARACTERS_MAX:
        raise ValueTooLarge(f"a line of the log has at most {LOG_CHARACTERS_MAX} characters, not {len(text)}")
    yield from append(engine, [engine.kinds.noted(KIND, {"text": text})])


class Logged(msgspec.Struct, frozen=True):
    """What was logged since the files were last written."""

    lines: dict[str, str]
    """By file, what is added to it."""
    upto: str
    """Which was the last of them: its position, and its time in milliseconds."""


def logged_since(engine: Engine, upto: str, day: date | None = None) -> Logged:
    """What has been logged after that, from a `day` on if that is later.

    What may still appear before something that is there is left for later.
    """
    book, lines = book_of(engine), dict[str, str]()
    if book is None:
        return Logged(lines, upto)
    after = _place_of(book, upto) if upto else BEGINNING
    if day is not None:
        after = max(after, at_time(book.store, book.owner, datetime.combine(day, time()).astimezone()))
    while rows := book.rows((KIND,), 0, after, settled_end(book.store), EVENTS_OF_PAGE_MAX):
        for event in book.events(rows, typed=False):
            path = log_of(_local(event.at).date())
            lines[path] = lines.get(path, "") + _line(event)
        after = Position(*rows[-1][:4])
        upto = f"{after.token} {rows[-1][-1]}"
    return Logged(lines, upto)


def _place_of(book: Book, upto: str) -> Position:
    """Where that event is now. An agent that has moved has other numbers in its new store, but the same times."""
    token, _, at = upto.partition(" ")
    position = placed(book.store, book.owner, read_token(token))
    if (int(at),) in book.store.read("has_happening", (book.owner, *position)):
        return position
    since = at_time(book.store, book.owner, moment(int(at)))
    rows = book.rows((KIND,), 0, since, END, EVENTS_OF_PAGE_MAX)
    same = [row for row in rows if row[-1] == int(at)]
    return Position(*same[-1][:4]) if same else at_time(book.store, book.owner, moment(int(at)), after=True)


def _line(event: Event) -> str:
    said = event.data.get("text", "") if isinstance(event.data, dict) else str(event.data)
    of_run = f" [{' '.join(event.run.split())}]" if event.run else ""
    # What follows in a note of several lines is indented: it belongs to its item, whatever it looks like.
    text = "\n  ".join(said.strip().split("\n"))
    return f"- {_local(event.at):%H:%M}{of_run} {text}\n"


def _local(at: datetime) -> datetime:
    """People look for what they did on a day of theirs."""
    return at.astimezone()


def today(engine: Engine) -> date:
    """The day that it is here."""
    return _local(moment(engine.store.clock.wall_ms())).date()


def with_lines(before: str | None, path: str, lines: str) -> str:
    """The log of a day with something added."""
    if before is None:
        day = day_of(path)
        before = f"# {day.isoformat() if day is not None else path}\n\n"
    return before + ("" if not before or before.endswith("\n") else "\n") + lines
