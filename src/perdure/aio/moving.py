"""What has to do with where an agent lives: its identity, and moving house."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Self

from .face import AsyncFace

if TYPE_CHECKING:
    from ..identity import Identity
    from ..keys import KeySource
    from ..moving.leaving import Exported


class AsyncMoves(AsyncFace):
    """The part of an agent that has to do with who and where it is. It is loaded when it is first used."""

    @property
    def identity(self) -> Identity:
        """Who this agent is: its public key, whom it was copied from, and what it signs."""
        from ..identity import Identity

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
        """Write this agent into one file: journal, state, memories, artifacts, threads, archives, and its public key.

        >>> await agent.export("travel.perdure")
        >>> await agent.export("travel.perdure", move=True)

        What is imported from it is a child with a key of its own. With `move=True` it is this very agent, and here
        nothing is written for it any more: whoever has a run of it open loses it, and later calls raise `AgentMoved`.
        The private key goes along only with `private_key=True`, locked by the passphrase. The file is signed, and is
        there as a whole or not at all; one that exists is left alone. `progress` is told (entries done, of how many).

        The report has `notes` of what stays behind: archives that are not where they should be, which is beside the
        store or in the folder `archive`, and runs of other agents that this one's wait for. `dry_run=True` says the
        same, and writes nothing.
        """
        from ..moving.leaving import Wish, export

        where, folder = os.fspath(path), os.fspath(archive) if archive is not None else None
        wish = Wish(move, private_key, passphrase, folder, dry_run)
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
        """The agent in a file that `export` has written, in a store of any kind; every hash and signature is checked.

        >>> agent = await AsyncAgent.import_from("travel.perdure", store="postgresql://localhost/agents")

        One that has moved goes on as itself; a copy becomes a child with a key of its own, called `name` if you say
        so. `passphrase` unlocks the private key, if that is in the file. Interrupted, nothing of it is there.
        `take_back=True` undoes a move in the store that it left: only if nobody has imported the file, nor will.

        A file that is not signed by its agent raises `ExportUnsigned`: anybody may have written it. If you know who
        did, say `accept_unsigned=True`; it is refused all the same if the agent's private key is in it, or here.

        Nothing in a file can tell whether somebody else has imported it too. Give the store that the agent has left as
        `origin`, if you can reach it: it is told first, and refuses whoever comes later.
        """
        from ..moving.importing import bring_in
        from ..moving.lines import header_of

        where, left = os.fspath(path), os.fspath(origin) if origin is not None else None
        agent = cls(name or header_of(where).agent, store=store, key=key)  # type: ignore[arg-type, call-arg]
        bring = partial(bring_in, agent._engine, where, passphrase=passphrase, take_back=take_back, origin=left)
        # Not `_read`, which opens the store: a file that is refused must not leave an empty one.
        # unasync: async-only
        import asyncio

        await asyncio.to_thread(bring, accept_unsigned=accept_unsigned)
        # unasync: end
        # unasync: sync-only
        #: bring(accept_unsigned=accept_unsigned)
        # unasync: end
        return agent

    async def retire(self, reason: str = "") -> None:
        """This agent is not to work any more: nothing is written for it, by anybody. What it did can be read.

        >>> await agent.retire("replaced by travel-2")
        """
        from ..moving.leaving import retire

        await self._read(lambda: retire(self._engine, reason))
