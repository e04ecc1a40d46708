"""`agent.open(ref)`: what was masked, shortened or summarised is read again."""

from __future__ import annotations

from ..engine import Engine
from ..errors import RefNotFound, RunNotFound
from ..journal.lineage import events_of
from ..memory.seeing import get
from ..objects import unpack
from ..run.core import RunCore, view_of
from ..run.history import effective
from ..run.requests import Protocol, Read
from ..run.scope import current
from ..run.writes import opened, read_raw
from ..runs import must_exist, summary_of
from .refs import Ref, parse
from .said import Result, Said, Text, said
from .shown import transcript

Lines = tuple[int, int]


def reopened(engine: Engine, ref: str, lines: Lines | None, find: str | None) -> Protocol[str]:
    """The text behind a pointer: all of it, some lines, or those in which something is found."""
    if lines is not None and not 1 <= lines[0] <= lines[-1]:
        raise ValueError(f"lines={lines!r}: the first and the last one, counted from 1: (200, 260)")
    wanted = parse(ref)
    if isinstance(wanted, str):
        return _chosen((yield from get(engine, wanted)).text, lines, find)
    text: str = yield Read(_text, (engine, wanted))
    return _chosen(text, lines, find)


def _text(engine: Engine, wanted: Ref) -> str:
    run = _open_here(engine, wanted.run)
    messages = _of_open(run, wanted) if run is not None else _of_stored(engine, wanted)
    if not messages:
        raise RefNotFound(f"run {wanted.run!r} has no message {wanted.first}")
    if len(messages) > 1:
        return transcript(tuple(messages))
    return _alone(messages[0])


def _alone(message: Said) -> str:
    """One message: what a tool returned, as it returned it; or what was said. All of it, when it is more than that."""
    parts = [part for part in message.parts if not isinstance(part, Text) or part.text]
    if all(isinstance(part, Result) for part in parts) or all(isinstance(part, Text) for part in parts):
        return "\n".join(part.text for part in parts if isinstance(part, Result | Text))
    return transcript((message,))


def _open_here(engine: Engine, run_id: str) -> RunCore | None:
    """The run around the caller, which may have messages that are not in the store yet."""
    frame = current()
    while frame is not None and (frame.run.engine is not engine or frame.run.id != run_id):
        frame = frame.parent
    return frame.run if frame is not None else None


def _of_open(run: RunCore, wanted: Ref) -> list[Said]:
    raw = [value for position, value in read_raw(run) if wanted.first <= position <= wanted.last]
    return [said(opened(run, value)) for value in raw]


def _of_stored(engine: Engine, wanted: Ref) -> list[Said]:
    store = engine.store
    try:
        summary = summary_of(store, must_exist(store, engine.name, wanted.run))
    except RunNotFound as error:
        raise RefNotFound(error.message) from error
    view = view_of(effective(events_of(store, summary.stream, fork=summary.origin > 0)))
    raw = [value for position, value in view.messages if wanted.first <= position <= wanted.last]
    return [said(unpack(store, value)) for value in raw]


def _chosen(text: str, lines: Lines | None, find: str | None) -> str:
    if lines is None and find is None:
        return text
    numbered = list(enumerate(text.split("\n"), 1))
    first, last = lines or (1, len(numbered))
    there = numbered[first - 1 : last]
    if find is None:
        return "\n".join(line for _, line in there)
    return "\n".join(f"{number}: {line}" for number, line in there if find.casefold() in line.casefold())
