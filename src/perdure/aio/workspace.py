"""The public face of a workspace. Only arguments and documentation: `perdure.workspace` decides."""

from __future__ import annotations

import builtins

from ..engine import Engine
from ..handoff.desk import desk_of
from ..handoff.gathering import gather
from ..handoff.progress import Progress
from ..limits import LOG_DAYS
from ..state import waiting_room
from ..tokens import Tokens
from ..workspace import documents
from ..workspace.boot import BUDGET, Bootstrap
from ..workspace.documents import FileVersion
from ..workspace.home import Home, handed_over, in_step, log, must_have_context, shown, standing
from ..workspace.layout import CONTEXTS, HANDOFF, TASKS, checked_path, path_in
from ..workspace.old_logs import Consolidate, compact
from ..workspace.syncing import Synced
from ..workspace.waking import booted
from .face import AsyncFace


class AsyncWorkspace(AsyncFace):
    """The side of an agent that people read: a folder of Markdown files, in step with the journal both ways.

    >>> workspace = await agent.workspace("~/travel")
    >>> print(await workspace.bootstrap())
    >>> await workspace.write("tasks/paris.md", "- [ ] find a hotel")

    Edit the files as you like: `sync` makes your edits entries of the journal, and shows in the files what the agent
    has written. When both have changed a file, both changes are in it.
    """

    def __init__(self, engine: Engine, home: Home) -> None:
        super().__init__(engine)
        self._home = home

    @property
    def path(self) -> str:
        """The folder."""
        return self._home.root.path

    async def sync(self) -> Synced:
        """Bring the files and the journal in step; says what has changed.

        >>> print(await workspace.sync())
        read USER.md; written memory/2026-11-16.md
        """
        return await self._do(in_step(self._engine, self._home))

    async def commit(self, message: str) -> Synced:
        """Bring everything in step, and commit it to git with this message. `.commit` is its id, `.notes` why not."""
        return await self._do(in_step(self._engine, self._home, message))

    async def bootstrap(self, budget: int = BUDGET, *, tokens: Tokens | None = None) -> Bootstrap:
        """What to read when waking up, in at most so many tokens: identity, memory, logs, tasks and progress.

        >>> print(await workspace.bootstrap(budget=4000))

        `.dropped` says what did not fit. Tokens are counted with an installed tokeniser, else estimated, unless you
        give a function that counts those of a text.
        """
        return await self._do(booted(self._engine, self._home, budget, tokens))

    async def read(self, path: str) -> str | None:
        """The text of a file; None when it is not there. Edits that were not synced yet are synced first."""
        await self._in_step(checked_path(path))
        found = await self._read(lambda: documents.shelf_of(self._engine))
        return found.documents[path].text if path in found.documents else None

    async def write(self, path: str, text: str) -> None:
        """Write a file. Inside a step it lands with the step.

        >>> await workspace.write("MEMORY.md", "The user prefers trains.")
        """
        await self._do(documents.write(self._engine, path, text))
        await self._in_step(path)

    async def append(self, path: str, text: str) -> None:
        """Add lines to the end of a file. Inside a step they land with the step.

        >>> await workspace.append("MEMORY.md", "- The user prefers trains.")
        """
        await self._do(documents.append(self._engine, path, text))
        await self._in_step(path)

    async def delete(self, path: str) -> None:
        """Remove a file; the journal keeps what it was."""
        await self._do(documents.write(self._engine, path, None))
        await self._in_step(path)

    async def history(self, path: str) -> list[FileVersion]:
        """Everything that a file has been, oldest first, whoever wrote it."""
        return await self._read(lambda: documents.history(self._engine, path))

    async def files(self) -> list[str]:
        """The files that there are."""
        return builtins.list((await self._read(lambda: standing(self._engine, self._home))).files)

    async def task(self, name: str, text: str) -> None:
        """Write `tasks/NAME.md`. It is active until it says `status: done`, or all of its boxes are ticked.

        >>> await workspace.task("paris", "- [ ] find a hotel")
        """
        await self.write(path_in(TASKS, name), text)

    async def context(self) -> str | None:
        """The name of the selected context."""
        return (await self._read(lambda: standing(self._engine, self._home))).context or None

    async def switch(self, name: str | None, text: str | None = None) -> None:
        """Select `contexts/NAME.md`, which is part of the bootstrap from then on; None selects none.

        >>> await workspace.switch("work", "Only talk about work here.")

        With a text it is written first; without one it must be there.
        """
        if name is not None and text is not None:
            await self._do(documents.write(self._engine, path_in(CONTEXTS, name), text))
        await self._in_step()
        if name is not None and waiting_room(self._engine) is None:
            await self._read(lambda: must_have_context(self._engine, name))
        await self._do(documents.switch(self._engine, name))

    async def log(self, text: str, *, trust: float | str | None = None, source: str | None = None) -> None:
        """Note something in the log of the day, as `agent.log` does."""
        await self._do(log(self._engine, text, trust, source))

    async def progress(self) -> list[Progress]:
        """How far everything is, as PROGRESS.md shows it."""
        await self._in_step()
        return await self._read(lambda: gather(desk_of(self._engine)))

    async def handoff(self) -> str:
        """Write HANDOFF.md: what the agent was doing, has decided, what is pending and in doubt; returns its text."""
        await self._do(handed_over(self._engine, self._home))
        return await self.read(HANDOFF) or ""

    async def compact(self, *, days: int = LOG_DAYS, consolidate: Consolidate | None = None) -> tuple[str, ...]:
        """Put logs of more than so many days ago into `memory/archive/`; returns which.

        `consolidate(day, text)` says what of a day is worth keeping: that is added to MEMORY.md. Without it, it is the
        few items of the log that say most.
        """
        return await self._do(compact(self._engine, self._home, days, consolidate))

    async def _in_step(self, under: str = "") -> None:
        """One file, or all of them."""
        await self._do(shown(self._engine, self._home, under=under))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path!r} of {self._engine.name!r}>"
