"""Logs of days long past are put away; what is worth keeping of them is in MEMORY.md, and can be recalled."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from typing import TYPE_CHECKING

import msgspec

from .. import state
from ..errors import VersionConflict
from ..failpoints import Site
from ..handoff import readable
from ..journal.landing import Unchanged, Wanted
from ..journal.memories import Keep
from ..limits import LOG_DAYS, LOG_ITEMS_KEPT, MEMORY_CHARACTERS_MAX
from ..lines import with_newlines_only
from ..run.requests import Protocol, Read
from .documents import SPACE, Document, Shelf, ask, decoded, shelf_of
from .home import Home, in_step
from .layout import MEMORY, archive_of, day_of
from .logs import logged_on, today
from .placing import put_alone
from .root import Root
from .syncing import TRIES, locked

if TYPE_CHECKING:
    from ..engine import Engine

LOGGED_TRUST = 0.5
"""Of what a program has logged without saying how far it is to be believed: it may be what a tool has answered."""
EDITED_TRUST = 0.3
"""Of what stands in the file and nobody has logged: whoever can write to the file has written it."""
_MARK = re.compile(r"[-*+]\s+(?:\d\d:\d\d\s+)?")
"""How an item of a log begins."""
Consolidate = Callable[[date, str], str]
"""Given a day and its log, what is worth keeping of it; nothing is an empty text."""


def compact(
    engine: Engine, home: Home, days: int = LOG_DAYS, consolidate: Consolidate | None = None
) -> Protocol[tuple[str, ...]]:
    """Put logs away that are older than some days; what `consolidate` makes of each is known from then on."""
    if type(days) is not int or days < 1:
        raise ValueError(f"days={days!r}: a number from 1")
    yield from in_step(engine, home)
    shelf = yield Read(shelf_of, (engine,))
    done = list[str]()
    for path, day in _old_logs(shelf.documents, today(engine), days).items():
        text = shelf.documents[path].text
        kept = yield Read(consolidate or gist, (day, _shown(text)))  # who knows how long: nobody is kept out meanwhile
        if (yield from _put_away(engine, home, path, _Day(day, text, with_newlines_only(str(kept or "")).strip()))):
            done.append(path)
    if done:
        yield from in_step(engine, home, f"Archived {len(done)} old {'log' if len(done) == 1 else 'logs'}")
    return tuple(done)


class _Day(msgspec.Struct, frozen=True):
    """The log of a day, and what is kept of it."""

    day: date
    text: str
    kept: str


def _old_logs(documents: Mapping[str, Document], now: date, days: int) -> dict[str, date]:
    """The logs of days that are more than so many days past."""
    found = {path: day for path in sorted(documents) if (day := day_of(path)) is not None}
    return {path: day for path, day in found.items() if (now - day).days > days}


def gist(day: date, text: str) -> str:
    """The items of a log that say most of what it says, as they are: what is kept when nobody says how."""
    from ..memory.extracting import extracted

    items = list(_items(text))
    return "".join(items[place] for place in extracted(items, LOG_ITEMS_KEPT))


def _items(text: str) -> Iterator[str]:
    """What was noted, piece by piece: a line with the indented ones after it. Headings say nothing."""
    item = ""
    for line in text.split("\n"):
        if line.startswith((" ", "\t")) and item:
            item += f"{line}\n"
            continue
        if item:
            yield item
        item = f"{line}\n" if line.strip() and not line.startswith("#") else ""
    if item:
        yield item


def _put_away(engine: Engine, home: Home, path: str, it: _Day) -> Protocol[bool]:
    """The archive is on disk before the document goes; what is kept of it lands in the same commit.

    False when somebody has edited it meanwhile: then it is for the next time.
    """
    lock = yield from locked(home.root)
    try:
        for _ in range(TRIES):
            shelf: Shelf = yield Read(shelf_of, (engine,))
            if path not in shelf.documents or shelf.documents[path].text != it.text:
                return False
            yield Read(_archive, (home.root, archive_of(path), it.text))
            asks = yield Read(_asks, (engine, shelf, path, it))
            try:
                yield from state.land(engine, Site.STATE, asks)
            except VersionConflict:
                continue
            return True
    finally:
        os.close(lock)
    return False


def _asks(engine: Engine, shelf: Shelf, path: str, it: _Day) -> list[Wanted]:
    asks: list[Wanted] = [Unchanged((engine.stream, SPACE), shelf.revision), ask(engine, path, None)]
    if it.kept:
        before = shelf.documents[MEMORY].text.rstrip("\n") + "\n\n" if MEMORY in shelf.documents else ""
        asks.append(ask(engine, MEMORY, {"text": f"{before}## {it.day.isoformat()}\n\n{it.kept}\n"}))
        asks += _memories(engine, path, it)
    return asks


def _memories(engine: Engine, path: str, it: _Day) -> list[Keep]:
    """Each item as something that the agent knows since that day, to be recalled."""
    from ..memory.given import wish_of
    from ..memory.keeping import asked

    trust = Trust(engine, it.day, _shown(it.text))
    found = [(trust.of(said), said) for said in map(_said, _items(it.kept)) if said]
    wishes = [
        wish_of(_storable(known.text or said), source=known.source or path, trust=known.trust, valid_from=it.day)
        for known, said in found
    ]
    return asked(engine, wishes)


def _shown(text: str) -> str:
    """A log as models and people see it: bytes that are no text are marked, and only a newline ends a line."""
    return with_newlines_only(readable(text))


def _storable(text: str) -> str:
    """A file may have what no memory can have."""
    return _shown(text)[:MEMORY_CHARACTERS_MAX]


def _said(item: str) -> str:
    return _MARK.sub("", item, count=1).strip()


class Known(msgspec.Struct, frozen=True):
    """What is known of an item of a log."""

    trust: float
    source: str = ""
    text: str = ""
    """As it was logged."""


class Trust:
    """How far the items of a day's log are believed: by who has written them, and never more than that."""

    def __init__(self, engine: Engine, day: date, text: str) -> None:
        self._logged: dict[str, Known] = {}
        for line in logged_on(engine, day):
            one = Known(LOGGED_TRUST if line.trust is None else line.trust, line.source, f"{line.of_run}{line.text}")
            shown = _shown(str(line))
            self._logged[shown] = min(one, self._logged.get(shown, one), key=lambda it: it.trust)
        self._there = {_said(item) for item in _items(text)}

    def of(self, said: str) -> Known:
        """One of the log as it stands there by itself; what somebody has made of several by the least of them."""
        if said in self._there:
            return self._logged.get(said, Known(EDITED_TRUST))
        return Known(min((self.of(one).trust for one in self._there), default=EDITED_TRUST))


def _archive(root: Root, archive: str, text: str) -> None:
    """Beside what is there of that day, if somebody has begun it anew after it was put away."""
    for _ in range(TRIES):
        data = root.read(archive)
        before = None if data is None else decoded(data)
        if before is not None and text in before:
            return
        if put_alone(root, archive, before, (before or "") + text):
            return
    raise VersionConflict(f"{archive} changes faster than it can be read")
