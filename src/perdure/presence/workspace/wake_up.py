"""Builds the bootstrap of an agent that starts, from a folder or from the journal alone."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from perdure.errors import WorkspaceNotFound
from perdure.kernel.protocol import Protocol, Read
from perdure.presence.handoff.pending import RUNS_TOLD
from perdure.presence.handoff.progress import read_all_progress
from perdure.presence.handoff.progress_text import render
from perdure.presence.workspace.bootstrap import BUDGET, BootSection, Bootstrap, bootstrap, sections_of
from perdure.presence.workspace.documents import WorkspaceDocument, shelf_of
from perdure.presence.workspace.layout import PROGRESS
from perdure.presence.workspace.log_archive import compact
from perdure.presence.workspace.logs import append_log_lines, read_logged_since, today
from perdure.presence.workspace.workspace import WorkspaceFolder, warn_on_failure
from perdure.values.tokens import TokenCounter

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine


def boot(
    engine: Engine, home: WorkspaceFolder | None, budget: int = BUDGET, tokens: TokenCounter | None = None
) -> Protocol[Bootstrap]:
    """Return what an agent reads when it starts. An open folder is synced first, and old logs are archived."""
    if home is not None:
        yield from warn_on_failure(
            home, compact(engine, home)
        )  # problems with files must not keep an agent from starting
    sections = yield Read(read_wake_sections, (engine, tokens))
    if not sections:
        raise WorkspaceNotFound(f"agent {engine.name!r} has no workspace, and none was found at or above {os.getcwd()}")
    return bootstrap(sections, budget, tokens)


def read_wake_sections(engine: Engine, tokens: TokenCounter | None = None) -> tuple[BootSection, ...]:
    """Return the whole sections from the journal alone, also on a host without a folder of the agent."""
    if not engine.is_known():
        return ()
    shelf, now = shelf_of(engine), today(engine)
    documents = dict(shelf.documents)
    for path, lines in read_logged_since(engine, shelf.logged, now - timedelta(days=1)).lines.items():
        before = documents.get(path)
        documents[path] = WorkspaceDocument(append_log_lines(before.text if before is not None else None, path, lines))
    if PROGRESS not in documents:  # no folder has been synced yet
        said = read_all_progress(engine.store, engine.name, engine.stream)
        documents[PROGRESS] = WorkspaceDocument(render([*said.values()][-RUNS_TOLD:]))
    return sections_of(msgspec.structs.replace(shelf, documents=documents), now, tokens)
