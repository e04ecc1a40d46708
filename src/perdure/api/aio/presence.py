"""The public API of an agent's workspace, log, bootstrap and handoff. The logic is in `perdure.presence`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from perdure.api.aio.base import AsyncFacade

if TYPE_CHECKING:
    from perdure.api.aio.workspace import AsyncWorkspace
    from perdure.presence.handoff.pending import AgentHandoff
    from perdure.presence.workspace.bootstrap import Bootstrap
    from perdure.values.tokens import TokenCounter


class AsyncAgentFiles(AsyncFacade):
    """The methods of an agent for workspace files. Their modules are imported on first use."""

    __slots__ = ()

    async def workspace(self, path: str | os.PathLike[str] | None = None, *, git: bool | None = None) -> AsyncWorkspace:
        """Open or create a folder of Markdown files that people edit and that is synced with this agent.

        >>> workspace = await agent.workspace("~/travel")

        It has `SOUL.md`, `USER.md`, `AGENTS.md`, `MEMORY.md`, a log for each day, tasks, contexts, `PROGRESS.md` and
        `HANDOFF.md`. Without a path, it is the nearest workspace above the working folder. In a git repository,
        progress is committed. `git=True` initialises a repository; `git=False` never uses git.
        """
        from perdure.api.aio.workspace import AsyncWorkspace
        from perdure.presence.workspace.workspace import open_workspace, resolve_folder

        home = await self._do(open_workspace(self._engine, resolve_folder(path), git))
        return AsyncWorkspace(self._engine, home)

    async def log(self, text: str, *, trust: float | str | None = None, source: str | None = None) -> None:
        """Append a line to the log of the day, `memory/YYYY-MM-DD.md` in the workspace.

        >>> await agent.log("The hotel has no rooms in May.")

        Inside a step it lands with the step. `source` is its origin and `trust` (0 to 1) how reliable that is: memories
        made from it are trusted no more.
        """
        from perdure.presence.workspace.workspace import log

        await self._do(log(self._engine, text, trust, source))

    async def bootstrap(self, budget: int = 10_000, *, tokens: TokenCounter | None = None) -> Bootstrap:
        """Return what the agent should read when it starts, from the last opened or the nearest workspace.

        >>> print(await agent.bootstrap())

        Without a workspace folder the text comes from the journal.
        """
        from perdure.presence.workspace.wake_up import boot
        from perdure.presence.workspace.workspace import find_folder

        home = await self._do(find_folder(self._engine))
        return await self._do(boot(self._engine, home, budget, tokens))

    async def handoff(self) -> AgentHandoff:
        """Return a brief of this agent's work: runs, decisions and reasons, pending and in doubt. `str()` is Markdown.

        >>> print(await agent.handoff())

        If a workspace is open, it is also written to HANDOFF.md, as SIGTERM and the end of every run do.
        """
        from perdure.presence.handoff.pending import desk_of
        from perdure.presence.workspace.open_folder import home_of
        from perdure.presence.workspace.workspace import update_all_files

        await self._do(update_all_files(self._engine, home_of(self._engine)))
        return await self._read(lambda: desk_of(self._engine))
