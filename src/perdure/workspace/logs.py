"""The daily log: `agent.log(text)` notes an event, and the file of the day shows it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from ..clock import moment
from ..errors import ValueTooLarge
from ..events.positions import BEGINNING, END, Position, at_time, placed, read_token, settled_end
from ..events.reading import Book, Event, book_of
from ..events.writing import append
from ..handoff import in_brackets
from ..limits import EVENTS_OF_PAGE_MAX, LOG_CHARACTERS_MAX
from ..lines import lines_of
from ..memory.given import read_name, read_trust
from ..memory_records import TRUSTED
from ..run.requests import Protocol
from .documents import with_more
from .layout import day_of, log_of

if TYPE_CHECKING:
    from ..engine import Engine

KIND = "perdure:log"


def log(engine: Engine, text: str, trust: float | str | None = None, source: str | None = None) -> Protocol[None]:
    """Note something in the log of the day. In a step it lands with the step."""
    if not isinstance(text, str):
        raise TypeError(f"a log has text, not {text!r}")
    if not text.strip():
        raise ValueError("a line of the log needs a text")
    if len(text) > LOG_CHARACTERS_MAX:
        raise ValueTooLarge(f"a line of the log has at most {LOG_CHARACTERS_MAX} characters, not {len(text)}")
    said: dict[str, Any] = {"text": text}
    said |= {} if trust is None else {"trust": read_trust(trust)}
    said |= {} if source is None else {"source": read_name(source, "source")}
    yield from append(engine, [engine.kinds.noted(KIND, said)])


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
            lines[path] = lines.get(path, "") + f"- {_local(event.at):%H:%M} {_read(event)}\n"
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


class Line(msgspec.Struct, frozen=True):
    """What somebody has logged, as the file of the day has it after the time."""

    text: str
    trust: float | None
    """How far it is believed; None when nobody has said so."""
    source: str
    origin: str
    """What the file says of that."""
    of_run: str

    def __str__(self) -> str:
        return f"{self.of_run}{self.origin}{self.text}"


def _read(event: Event) -> Line:
    said: dict[str, Any] = event.data if isinstance(event.data, dict) else {"text": str(event.data)}
    trust, source = said.get("trust"), str(said.get("source", ""))
    parts = ["untrusted"] if trust is not None and trust < TRUSTED else []
    parts += [f"from {in_brackets(source)}"] if source else []
    # What follows in a note of several lines is indented: it belongs to its item, whatever it looks like.
    text = "\n  ".join(lines_of(str(said.get("text", "")).strip()))
    of_run = f"[{' '.join(event.run.split())}] " if event.run else ""
    return Line(text, trust, source, f"({', '.join(parts)}) " if parts else "", of_run)


def logged_on(engine: Engine, day: date) -> Iterator[Line]:
    """What was logged on a day, or on the one before or after it: nobody knows where on earth that was."""
    book = book_of(engine)
    if book is None:
        return
    around = (datetime.combine(day + timedelta(days=days), time(), UTC) for days in (-1, 2))
    after, to = (at_time(book.store, book.owner, at) for at in around)
    while rows := book.rows((KIND,), 0, after, to, EVENTS_OF_PAGE_MAX):
        yield from map(_read, book.events(rows, typed=False))
        after = Position(*rows[-1][:4])


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
    return with_more(before, lines)
