"""Logs of days long past are put away; what is worth keeping of them is in MEMORY.md, and can be recalled."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from typing import TYPE_CHECKING

from .. import state
from ..errors import VersionConflict
from ..failpoints import Site
from ..journal.landing import Unchanged, Wanted
from ..journal.memories import Keep
from ..limits import LOG_DAYS, LOG_ITEMS_KEPT
from ..run.requests import Protocol, Read
from .documents import SPACE, Document, ask, decoded, encoded, shelf_of
from .home import Home, in_step
from .layout import MEMORY, archive_of, day_of
from .logs import today

if TYPE_CHECKING:
    from ..engine import Engine

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
    old = _old_logs(shelf.documents, today(engine), days)
    for path, day in old.items():
        text = shelf.documents[path].text
        kept = yield Read(consolidate or gist, (day, text))
        yield from _put_away(engine, home, path, day, text, str(kept or "").strip())
    if old:
        yield from in_step(engine, home, f"Archived {len(old)} old {'log' if len(old) == 1 else 'logs'}")
    return tuple(old)


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


def _put_away(engine: Engine, home: Home, path: str, day: date, text: str, kept: str) -> Protocol[None]:
    """The archive is on disk before the document goes; what is kept of it lands in the same commit."""
    shelf = yield Read(shelf_of, (engine,))
    if path not in shelf.documents or shelf.documents[path].text != text:
        raise VersionConflict(f"{path} was edited while it was put away", hint="try again")
    yield Read(_archive, (home, path, text))
    asks: list[Wanted] = [Unchanged((engine.stream, SPACE), shelf.revision), ask(engine, path, None)]
    if kept:
        before = shelf.documents[MEMORY].text.rstrip("\n") + "\n\n" if MEMORY in shelf.documents else ""
        asks.append(ask(engine, MEMORY, {"text": f"{before}## {day.isoformat()}\n\n{kept}\n"}))
        asks += yield Read(_memories, (engine, path, day, kept))
    yield from state.land(engine, Site.STATE, asks)


def _memories(engine: Engine, path: str, day: date, kept: str) -> list[Keep]:
    """Each item as something that the agent knows since that day, to be recalled."""
    from ..memory.given import wish_of
    from ..memory.keeping import asked

    said = [_MARK.sub("", item, count=1).strip() for item in _items(kept)]
    return asked(engine, [wish_of(one, source=path, valid_from=day) for one in said if one])


def _archive(home: Home, path: str, text: str) -> None:
    """Beside what is there of that day, if somebody has begun it anew after it was put away."""
    archive = archive_of(path)
    before = decoded(home.root.read(archive) or b"")
    if text not in before:
        home.root.write(archive, encoded(before + text))
