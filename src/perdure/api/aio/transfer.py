"""The public API of identity, export, import and retirement. The logic is in `perdure.transfer`."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Self

from perdure.api.aio.base import AsyncFacade

if TYPE_CHECKING:
    from perdure.journal.keys import KeySource
    from perdure.kernel.identity import Identity
    from perdure.transfer.export import Exported


class AsyncAgentTransfer(AsyncFacade):
    """The methods of an agent for identity and transfer. Their modules are imported on first use."""

    __slots__ = ()

    @property
    def identity(self) -> Identity:
        """The identity of this agent: its public key, its parent, and its signatures."""
        from perdure.kernel.identity import Identity

        return Identity(self._engine)

    async def export(
        self,
        path: str | os.PathLike[str],
        *,
        move: bool = False,
        private_key: bool = False,
        passphrase: str | None = None,
        archive: str | os.PathLike[str] | None = None,
        dry_run: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> Exported:
        """Export this agent to one signed file: journal, state, memories, artifacts, threads, archives, public key.

        >>> await agent.export("travel.perdure")
        >>> await agent.export("travel.perdure", move=True)

        An import of the file creates a child with its own key. With `move=True` it continues this agent instead: open
        runs lose their lease here, and later calls raise `AgentMoved`. `private_key=True` includes the private key,
        encrypted with the passphrase. The file is written atomically and never overwrites another.
        `progress(done, total)` counts entries.

        The `notes` of the report list what stays behind: archives that are neither next to the store nor in the folder
        `archive`, and runs of other agents that this agent waits for. `dry_run=True` reports without writing.
        """
        from perdure.transfer.export import ExportOptions, export

        where, folder = os.fspath(path), os.fspath(archive) if archive is not None else None
        wish = ExportOptions(move, private_key, passphrase, folder, dry_run)
        return await self._read(lambda: export(self._engine, where, wish, progress))

    @classmethod
    async def import_from(
        cls,
        path: str | os.PathLike[str],
        *,
        store: str | os.PathLike[str] | None = None,
        name: str | None = None,
        passphrase: str | None = None,
        take_back: bool = False,
        origin: str | os.PathLike[str] | None = None,
        accept_unsigned: bool = False,
        key: KeySource | None = None,
    ) -> Self:
        """Import the agent of an `export` file into any store and return it. Every hash and signature is checked.

        >>> agent = await AsyncAgent.import_from("travel.perdure", store="postgresql://localhost/agents")

        A moved agent keeps its identity; a copy becomes a child with its own key, called `name` if given. `passphrase`
        decrypts the private key in the file. An interrupted import leaves nothing behind. `take_back=True` undoes a
        move in the store that the agent left; use it only if nobody has imported the file or will.

        A file that its agent did not sign raises `ExportUnsigned`, because anybody may have written it. If you know who
        wrote it, pass `accept_unsigned=True`; this is refused if the agent's private key is in the file or here.

        A file cannot show whether it was already imported elsewhere. Pass the store that the agent left as `origin`, if
        you can reach it: the first import is registered there, and later ones are refused.
        """
        from perdure.transfer.file_format import header_of
        from perdure.transfer.import_file import import_agent

        where, left = os.fspath(path), os.fspath(origin) if origin is not None else None
        agent = cls(name or header_of(where).agent, store=store, key=key)  # type: ignore[arg-type, call-arg]
        bring = partial(import_agent, agent._engine, where, passphrase=passphrase, take_back=take_back, origin=left)
        done = False
        try:
            # Not `_read`, which opens the store: a refused file must not leave an empty store behind.
            # unasync: async-only
            import asyncio

            await asyncio.to_thread(bring, accept_unsigned=accept_unsigned)
            # unasync: end
            # unasync: sync-only
            #: bring(accept_unsigned=accept_unsigned)
            # unasync: end
            done = True
        finally:
            if not done:
                agent._engine.leave()
        return agent

    async def retire(self, reason: str = "") -> None:
        """Retire this agent: no process can write for it any more. Its data stays readable.

        >>> await agent.retire("replaced by travel-2")
        """
        from perdure.transfer.export import retire

        await self._read(lambda: retire(self._engine, reason))
