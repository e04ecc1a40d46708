"""Archives old daily logs, and keeps their essence in MEMORY.md and as memories."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from typing import TYPE_CHECKING

import msgspec

from perdure.errors import VersionConflict, WrongValue
from perdure.journal.agent_writes import AgentWrite, RequireRevision
from perdure.journal.memory_writes import SaveMemory
from perdure.kernel.protocol import Protocol, Read
from perdure.kernel.write_routing import land
from perdure.platform.failpoints import Site
from perdure.presence.handoff import readable
from perdure.presence.workspace.documents import SPACE, DocumentSet, WorkspaceDocument, ask, decode_text, shelf_of
from perdure.presence.workspace.layout import MEMORY, archive_of, day_of
from perdure.presence.workspace.logs import read_logged_on, today
from perdure.presence.workspace.replace_file import place_unjournaled
from perdure.presence.workspace.root import WorkspaceRoot
from perdure.presence.workspace.sync import TRIES, lock_folder
from perdure.presence.workspace.workspace import WorkspaceFolder, sync_folder
from perdure.values.limits import LOG_DAYS, LOG_ITEMS_KEPT, MEMORY_CHARACTERS_MAX
from perdure.values.lines import normalize_newlines

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

LOGGED_TRUST = 0.5
"""The trust of logged text without a stated trust: it may be the output of a tool."""
EDITED_TRUST = 0.3
"""The trust of text in the file that was not logged: anybody with write access may have added it."""
_MARK = re.compile(r"[-*+]\s+(?:\d\d:\d\d\s+)?")
"""The beginning of an item of a log."""
LogConsolidator = Callable[[date, str], str]
"""Maps a day and its log to what is worth keeping; an empty text is nothing."""


def compact(
    engine: Engine, home: WorkspaceFolder, days: int = LOG_DAYS, consolidate: LogConsolidator | None = None
) -> Protocol[tuple[str, ...]]:
    """Archive logs older than `days`. What `consolidate` returns for each is kept as memory."""
    if type(days) is not int or days < 1:
        raise WrongValue(f"days={days!r}: give a number from 1")
    yield from sync_folder(engine, home)
    shelf = yield Read(shelf_of, (engine,))
    done = list[str]()
    for path, day in _find_old_logs(shelf.documents, today(engine), days).items():
        text = shelf.documents[path].text
        kept = yield Read(
            consolidate or summarize, (day, _render_log(text))
        )  # may be slow, so it runs without the lock
        if (
            yield from _archive_log(engine, home, path, _DayLog(day, text, normalize_newlines(str(kept or "")).strip()))
        ):
            done.append(path)
    if done:
        yield from sync_folder(engine, home, f"Archived {len(done)} old {'log' if len(done) == 1 else 'logs'}")
    return tuple(done)


class _DayLog(msgspec.Struct, frozen=True):
    """The log of a day, and what is kept of it."""

    day: date
    text: str
    kept: str


def _find_old_logs(documents: Mapping[str, WorkspaceDocument], now: date, days: int) -> dict[str, date]:
    """Return the logs older than `days`."""
    found = {path: day for path in sorted(documents) if (day := day_of(path)) is not None}
    return {path: day for path, day in found.items() if (now - day).days > days}


def summarize(day: date, text: str) -> str:
    """Return the items that cover most of a log, unchanged: the default consolidation."""
    from perdure.memory.lifecycle.extraction import select_texts

    items = list(_items(text))
    return "".join(items[place] for place in select_texts(items, LOG_ITEMS_KEPT))


def _items(text: str) -> Iterator[str]:
    """Yield the items of a log: a line with its indented continuation. Headings are skipped."""
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


def _archive_log(engine: Engine, home: WorkspaceFolder, path: str, day: _DayLog) -> Protocol[bool]:
    """Write the archive durably, then remove the document; what is kept lands in the same commit.

    Returns False if the log was edited meanwhile: then it is left for the next time.
    """
    lock = yield from lock_folder(home.root)
    try:
        for _ in range(TRIES):
            shelf: DocumentSet = yield Read(shelf_of, (engine,))
            if path not in shelf.documents or shelf.documents[path].text != day.text:
                return False
            yield Read(_archive, (home.root, archive_of(path), day.text))
            asks = yield Read(_make_writes, (engine, shelf, path, day))
            try:
                yield from land(engine, Site.STATE, asks)
            except VersionConflict:
                continue
            return True
    finally:
        os.close(lock)
    return False


def _make_writes(engine: Engine, shelf: DocumentSet, path: str, day: _DayLog) -> list[AgentWrite]:
    asks: list[AgentWrite] = [RequireRevision((engine.stream, SPACE), shelf.revision), ask(engine, path, None)]
    if day.kept:
        before = shelf.documents[MEMORY].text.rstrip("\n") + "\n\n" if MEMORY in shelf.documents else ""
        asks.append(ask(engine, MEMORY, {"text": f"{before}## {day.day.isoformat()}\n\n{day.kept}\n"}))
        asks += _memories(engine, path, day)
    return asks


def _memories(engine: Engine, path: str, day: _DayLog) -> list[SaveMemory]:
    """Return each item as a memory valid since that day."""
    from perdure.memory.arguments import wish_of
    from perdure.memory.remember import make_writes

    trust = LogTrust(engine, day.day, _render_log(day.text))
    found = [(trust.find_origin(said), said) for said in map(_describe_item, _items(day.kept)) if said]
    wishes = [
        wish_of(_storable(known.text or said), source=known.source or path, trust=known.trust, valid_from=day.day)
        for known, said in found
    ]
    return make_writes(engine, wishes)


def _render_log(text: str) -> str:
    """Return a log for models and people: undecodable bytes are marked, and only newlines end lines."""
    return normalize_newlines(readable(text))


def _storable(text: str) -> str:
    """Return a text without characters that a memory cannot store."""
    return _render_log(text)[:MEMORY_CHARACTERS_MAX]


def _describe_item(item: str) -> str:
    return _MARK.sub("", item, count=1).strip()


class LogItemSource(msgspec.Struct, frozen=True):
    """The origin of an item of a log."""

    trust: float
    source: str = ""
    text: str = ""
    """The text as logged."""


class LogTrust:
    """Determines the trust of log items from who wrote them."""

    def __init__(self, engine: Engine, day: date, text: str) -> None:
        self._logged: dict[str, LogItemSource] = {}
        for line in read_logged_on(engine, day):
            one = LogItemSource(
                LOGGED_TRUST if line.trust is None else line.trust, line.source, f"{line.of_run}{line.text}"
            )
            shown = _render_log(str(line))
            self._logged[shown] = min(one, self._logged.get(shown, one), key=lambda known: known.trust)
        self._there = {_describe_item(item) for item in _items(text)}

    def find_origin(self, said: str) -> LogItemSource:
        """Return the origin of an item. A summary of several items is as little trusted as the least trusted."""
        if said in self._there:
            return self._logged.get(said, LogItemSource(EDITED_TRUST))
        return LogItemSource(min((self.find_origin(one).trust for one in self._there), default=EDITED_TRUST))


def _archive(root: WorkspaceRoot, archive: str, text: str) -> None:
    """Merge into an existing archive of that day, if the log was restarted after it was archived."""
    for _ in range(TRIES):
        data = root.read(archive)
        before = None if data is None else decode_text(data)
        if before is not None and text in before:
            return
        if place_unjournaled(root, archive, before, (before or "") + text):
            return
    raise VersionConflict(f"{archive} changes faster than it can be read")
