"""What an agent does with its workspace: open it, log, wake up, hand over."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .face import AsyncFace

if TYPE_CHECKING:
    from ..handoff.desk import AgentHandoff
    from ..tokens import Tokens
    from ..workspace.boot import Bootstrap
    from .workspace import AsyncWorkspace


class AsyncAtHome(AsyncFace):
    """The part of an agent that has to do with the files that people read. It is loaded when it is first used."""

    async def workspace(self, path: str | os.PathLike[str] | None = None, *, git: bool | None = None) -> AsyncWorkspace:
        """A folder of files that people read and edit, in step with what this agent knows and does.

        >>> workspace = await agent.workspace("~/travel")

        `SOUL.md`, `USER.md`, `AGENTS.md`, `MEMORY.md`, a log for each day, tasks, contexts, `PROGRESS.md` and
        `HANDOFF.md`. It is made when it is not there; without a path it is the nearest one above the working folder.
        In a git repository progress is committed; `git=True` makes it one, `git=False` leaves git alone.
        """
        from ..workspace.home import folder_meant, opened
        from .workspace import AsyncWorkspace

        home = await self._do(opened(self._engine, folder_meant(path), git))
        return AsyncWorkspace(self._engine, home)

    async def log(self, text: str, *, trust: float | str | None = None, source: str | None = None) -> None:
        """Note something in the log of the day: `memory/YYYY-MM-DD.md` of the workspace shows it.

        >>> await agent.log("The hotel has no rooms in May.")

        Inside a step it lands with the step. `source` says where it comes from, and `trust`, from 0 to 1, how far that
        is to be believed: what becomes a memory of it one day is trusted no more.
        """
        from ..workspace.home import log

        await self._do(log(self._engine, text, trust, source))

    async def bootstrap(self, budget: int = 10_000, *, tokens: Tokens | None = None) -> Bootstrap:
        """What to read when waking up, from the workspace that was opened last, or the nearest one.

        >>> print(await agent.bootstrap())

        Where there is no folder of this agent it is what the journal has of it.
        """
        from ..workspace.home import at_home
        from ..workspace.waking import booted

        home = await self._do(at_home(self._engine))
        return await self._do(booted(self._engine, home, budget, tokens))

    async def handoff(self) -> AgentHandoff:
        """What this agent was doing, has decided and why, what is pending and in doubt. `str()` of it is Markdown.

        >>> print(await agent.handoff())

        If a workspace is open it is written to HANDOFF.md. SIGTERM writes that by itself, as every end of a run does.
        """
        from ..handoff.desk import desk_of
        from ..workspace.home import handed_over

        await self._do(handed_over(self._engine, self._engine.home))
        return await self._read(lambda: desk_of(self._engine))
