"""Workspace: the files of an agent as the journal has them, with their history. The server's folders are not read."""

from __future__ import annotations

import asyncio
from difflib import unified_diff
from itertools import islice

import msgspec

from perdure.errors import ResourceNotFound
from perdure.kernel.engine import Engine
from perdure.presence.workspace.documents import FileVersion, history, shelf_of
from perdure.server.page.of_agent import AgentQuery, ListPart, ask, show_list
from perdure.server.page.page import Page, PageCall, Shown

ROWS = 100
VERSIONS = 100
CHANGED_LINES = 500


class FileLine(msgspec.Struct, frozen=True):
    """One file of the list."""

    path: str
    characters: int
    lines: int
    selected: bool
    """Whether it is the selected context."""


class FileQuery(msgspec.Struct, frozen=True):
    """Which version; the newest by default."""

    version: int | None = None


async def show_files(call: PageCall) -> Shown:
    """Show the files of an agent, sorted by path."""

    async def load(agent: str) -> ListPart:
        engine = (await ask(call, agent=agent).agent())._engine
        files = await asyncio.to_thread(_read_files, engine, call.query.cursor)
        return ListPart(files[:ROWS], files[ROWS - 1].path if len(files) > ROWS else None)

    return await show_list(call, "Workspace", "workspace", load)


async def show_file(call: PageCall) -> Shown:
    """Show one version of a file with what it changed."""
    agent, path, wanted = await call.agent(), call.path["path"], call.query.version
    versions: list[FileVersion] = await asyncio.to_thread(_read_history, agent._engine, path)
    place = next((number for number, one in enumerate(versions) if one.version == wanted), len(versions) - 1)
    if not versions or (wanted is not None and versions[place].version != wanted):
        raise ResourceNotFound(f"agent {agent.name!r} has no such version of the file {path!r}")
    before = versions[place - 1] if place else None
    return {
        "title": path,
        "agent": agent.name,
        "path": path,
        "shown": versions[place],
        "before": before,
        "versions": versions[: -VERSIONS - 1 : -1],
        "changes": _compare(before, versions[place]) if before is not None else [],
    }


def _read_files(engine: Engine, after: str) -> list[FileLine]:
    if not engine.is_known():
        return []
    shelf = shelf_of(engine)
    return [
        FileLine(path, len(one.text), one.text.count("\n"), path == f"contexts/{shelf.context}.md")
        for path, one in sorted(shelf.documents.items())
        if path > after
    ][: ROWS + 1]


def _read_history(engine: Engine, path: str) -> list[FileVersion]:
    return history(engine, path) if engine.is_known() else []


def _compare(before: FileVersion, after: FileVersion) -> list[tuple[str, str]]:
    """Return the lines of the difference, each with what it is: added, removed, same or place."""
    lines = unified_diff(before.text.splitlines(), after.text.splitlines(), lineterm="", n=2)
    kinds = {"+": "added", "-": "removed", "@": "place"}
    shown = islice(lines, 2, CHANGED_LINES)
    return [(kinds.get(line[:1], "same"), line if line.startswith("@") else line[1:]) for line in shown]


PAGE = Page(path="/workspace", show=show_files, template="files.html", query=AgentQuery, section="Workspace")
ONE = Page(path="/workspace/{agent}/{path}", show=show_file, template="file.html", query=FileQuery, section="Workspace")
