"""The public API of a workspace: arguments and documentation. The logic is in `perdure.presence.workspace`."""

from __future__ import annotations

import builtins

from perdure.api.aio.base import AsyncFacade
from perdure.kernel.engine import Engine
from perdure.kernel.write_routing import enclosing_buffer
from perdure.presence.handoff.gather import gather
from perdure.presence.handoff.pending import desk_of
from perdure.presence.handoff.progress import Progress
from perdure.presence.workspace import documents
from perdure.presence.workspace.bootstrap import BUDGET, Bootstrap
from perdure.presence.workspace.documents import FileVersion
from perdure.presence.workspace.layout import CONTEXTS, HANDOFF, TASKS, check_path, path_in
from perdure.presence.workspace.log_archive import LogConsolidator, compact
from perdure.presence.workspace.sync import Synced
from perdure.presence.workspace.wake_up import boot
from perdure.presence.workspace.workspace import (
    WorkspaceFolder,
    check_context,
    log,
    read_status,
    sync_folder,
    update_all_files,
    update_files,
)
from perdure.values.limits import LOG_DAYS
from perdure.values.tokens import TokenCounter


class AsyncWorkspace(AsyncFacade):
    """A folder of Markdown files that people read and edit, synced with the agent's journal in both directions.

    >>> workspace = await agent.workspace("~/travel")
    >>> print(await workspace.bootstrap())
    >>> await workspace.write("tasks/paris.md", "- [ ] find a hotel")

    `sync` records your edits in the journal and writes the agent's changes to the files. If both changed a file, both
    changes are merged.
    """

    __slots__ = ("_home",)

    def __init__(self, engine: Engine, home: WorkspaceFolder) -> None:
        super().__init__(engine)
        self._home = home

    @property
    def path(self) -> str:
        """The path of the folder."""
        return self._home.root.path

    async def sync(self) -> Synced:
        """Sync the files and the journal, and return what has changed.

        >>> print(await workspace.sync())
        read USER.md; written memory/2026-11-16.md
        """
        return await self._do(sync_folder(self._engine, self._home))

    async def commit(self, message: str) -> Synced:
        """Sync, then commit to git. `.commit` is the id; if there is none, `.notes` says why."""
        return await self._do(sync_folder(self._engine, self._home, message))

    async def bootstrap(self, budget: int = BUDGET, *, tokens: TokenCounter | None = None) -> Bootstrap:
        """Return what the agent should read when it starts: identity, memory, logs, tasks and progress.

        >>> print(await workspace.bootstrap(budget=4000))

        The text has at most `budget` tokens; `.dropped` lists what did not fit. `tokens` is a function that counts the
        tokens of a text; by default an installed tokeniser counts, else they are estimated.
        """
        return await self._do(boot(self._engine, self._home, budget, tokens))

    async def read(self, path: str) -> str | None:
        """Return the text of a file, or None if it does not exist. Pending edits are synced first."""
        await self._sync_paths(check_path(path))
        found = await self._read(lambda: documents.shelf_of(self._engine))
        return found.documents[path].text if path in found.documents else None

    async def write(self, path: str, text: str) -> None:
        """Write a file. Inside a step it lands with the step.

        >>> await workspace.write("MEMORY.md", "The user prefers trains.")
        """
        await self._do(documents.write(self._engine, path, text))
        await self._sync_paths(path)

    async def append(self, path: str, text: str) -> None:
        """Add lines to the end of a file. Inside a step they land with the step.

        >>> await workspace.append("MEMORY.md", "- The user prefers trains.")
        """
        await self._do(documents.append(self._engine, path, text))
        await self._sync_paths(path)

    async def delete(self, path: str) -> None:
        """Delete a file. The journal keeps its history."""
        await self._do(documents.write(self._engine, path, None))
        await self._sync_paths(path)

    async def history(self, path: str) -> list[FileVersion]:
        """Return every version of a file, oldest first, by any writer."""
        return await self._read(lambda: documents.history(self._engine, path))

    async def files(self) -> list[str]:
        """Return the paths of all files."""
        return builtins.list((await self._read(lambda: read_status(self._engine, self._home))).files)

    async def task(self, name: str, text: str) -> None:
        """Write `tasks/NAME.md`. The task is active until it says `status: done` or all of its boxes are ticked.

        >>> await workspace.task("paris", "- [ ] find a hotel")
        """
        await self.write(path_in(TASKS, name), text)

    async def context(self) -> str | None:
        """Return the name of the selected context."""
        return (await self._read(lambda: read_status(self._engine, self._home))).context or None

    async def switch(self, name: str | None, text: str | None = None) -> None:
        """Select `contexts/NAME.md` for the bootstrap, or no context with None.

        >>> await workspace.switch("work", "Only talk about work here.")

        With `text` the file is written first; without it the file must exist.
        """
        if name is not None and text is not None:
            await self._do(documents.write(self._engine, path_in(CONTEXTS, name), text))
        await self._sync_paths()
        if name is not None and enclosing_buffer(self._engine) is None:
            await self._read(lambda: check_context(self._engine, name))
        await self._do(documents.switch(self._engine, name))

    async def log(self, text: str, *, trust: float | str | None = None, source: str | None = None) -> None:
        """Append a line to the log of the day, as `agent.log` does."""
        await self._do(log(self._engine, text, trust, source))

    async def progress(self) -> list[Progress]:
        """Return the progress of all runs, as PROGRESS.md shows it."""
        await self._sync_paths()
        return await self._read(lambda: gather(desk_of(self._engine)))

    async def handoff(self) -> str:
        """Write HANDOFF.md (runs, decisions, pending work, effects in doubt) and return its text."""
        await self._do(update_all_files(self._engine, self._home))
        return await self.read(HANDOFF) or ""

    async def compact(self, *, days: int = LOG_DAYS, consolidate: LogConsolidator | None = None) -> tuple[str, ...]:
        """Move logs older than `days` to `memory/archive/` and return which ones.

        `consolidate(day, text)` returns what to keep of a day; it is appended to MEMORY.md. Without it, the most
        representative items of the log are kept.
        """
        return await self._do(compact(self._engine, self._home, days, consolidate))

    async def _sync_paths(self, under: str = "") -> None:
        """Sync one file, or all of them."""
        await self._do(update_files(self._engine, self._home, under=under))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path!r} of {self._engine.name!r}>"
