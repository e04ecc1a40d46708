"""The process that answers hooks: it opens one store, listens on a Unix socket, and ends by itself when it is idle."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from perdure.api.aio import AsyncAgent
from perdure.hooks.client import PAYLOAD_BYTES_MAX, note
from perdure.hooks.handlers import HookMoments, parse_call

IDLE_SECONDS = 600.0
IDLE_VARIABLE = "PERDURE_HOOK_IDLE"


class HookHelper:
    """Serves one agent of one store."""

    def __init__(self, path: str, agent: str, store: str, idle: float) -> None:
        self._path, self._idle = path, idle
        self._name, self._store = agent, store
        self._moments: HookMoments | None = None
        """Made by the first call, so that a store that cannot be opened is told to the client at once."""
        self._busy = 0
        self._turn = asyncio.Lock()
        self._ended = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    async def serve(self) -> None:
        """Listen until nobody has asked for a while."""
        with contextlib.suppress(FileNotFoundError):  # of a helper that was killed; we have its lock
            os.unlink(self._path)
        os.umask(0o077)
        server = await asyncio.start_unix_server(self._take, self._path, limit=PAYLOAD_BYTES_MAX)
        self._wait()
        try:
            await self._ended.wait()
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)
            server.close()
            if self._moments is not None:
                await self._moments.close()

    def _wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(self._idle, self._end)

    def _end(self) -> None:
        if self._busy:
            self._wait()
        else:
            self._ended.set()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._busy += 1
        self._wait()
        try:
            answer = await self._answer(await reader.readuntil(b"\n"))
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return  # the client has left, or sends more than any tool does
        finally:
            self._busy -= 1
            writer.close()

    async def _answer(self, data: bytes) -> dict[str, Any]:
        try:
            async with self._turn:  # in order: a note must not overtake the events before it
                if self._moments is None:
                    self._moments = HookMoments(AsyncAgent(self._name, store=self._store))
                return {"output": await self._moments.answer(parse_call(data))}
        except Exception as error:  # told to the client, which logs it
            return {"error": f"{type(error).__name__}: {error}"}


def main(arguments: Sequence[str]) -> int:
    """Serve, unless another helper does so already."""
    path, agent, store = arguments
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 0
    try:
        asyncio.run(_serve(path, agent, store))
    except Exception as error:  # nobody reads the output of this process: the log has it
        note(f"the helper ended: {type(error).__name__}: {error}")
        return 1
    return 0


async def _serve(path: str, agent: str, store: str) -> None:
    idle = float(os.environ.get(IDLE_VARIABLE) or IDLE_SECONDS)
    await HookHelper(path, agent, store, idle).serve()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
