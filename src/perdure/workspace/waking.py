"""Waking up: what there is to read first, with a folder or from the journal alone."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from ..errors import WorkspaceNotFound
from ..handoff.desk import RUNS_TOLD
from ..handoff.progress import all_said
from ..handoff.progress_text import render
from ..run.requests import Protocol, Read
from ..tokens import Tokens
from .boot import BUDGET, Bootstrap, Section, bootstrap, sections_of
from .documents import Document, shelf_of
from .home import Home, trying
from .layout import PROGRESS
from .logs import logged_since, today, with_lines
from .old_logs import compact

if TYPE_CHECKING:
    from ..engine import Engine


def booted(
    engine: Engine, home: Home | None, budget: int = BUDGET, tokens: Tokens | None = None
) -> Protocol[Bootstrap]:
    """What an agent reads when it wakes up; with a folder, in step with its files, and with old logs put away."""
    if home is not None:
        yield from trying(home, compact(engine, home))  # whoever wakes up needs what there is, whatever else is wrong
    sections = yield Read(waking, (engine, tokens))
    if not sections:
        raise WorkspaceNotFound(f"agent {engine.name!r} has no workspace, and there is none above {os.getcwd()}")
    return bootstrap(sections, budget, tokens)


def waking(engine: Engine, tokens: Tokens | None = None) -> tuple[Section, ...]:
    """The same whole, from the journal alone: it is there on a host that has no folder of the agent, too."""
    if not engine.is_known():
        return ()
    shelf, now = shelf_of(engine), today(engine)
    documents = dict(shelf.documents)
    for path, lines in logged_since(engine, shelf.logged, now - timedelta(days=1)).lines.items():
        before = documents.get(path)
        documents[path] = Document(with_lines(before.text if before is not None else None, path, lines))
    if PROGRESS not in documents:  # no folder has shown any yet
        said = all_said(engine.store, engine.name, engine.stream)
        documents[PROGRESS] = Document(render([*said.values()][-RUNS_TOLD:]))
    return sections_of(msgspec.structs.replace(shelf, documents=documents), now, tokens)
