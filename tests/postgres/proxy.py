"""A man in the middle: between clients and a server it counts round trips, and breaks the one that a test names.

    with Proxy(cluster) as proxy:
        agent = Agent("traveller", store=proxy.url("my_schema"))
        proxy.strike(3, Fault.CUT_AFTER)    # the third round trip from now: executed, but nobody hears of it

A round trip is everything that a client sends until it must wait, and the answer. Several statements in a pipeline
are one. A transaction commits in a round trip, so that who strikes at each in turn strikes at each COMMIT.
"""

from __future__ import annotations

import asyncio
import enum
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

import msgspec

from tests.postgres import wire
from tests.postgres.cluster import Cluster

CALL_SECONDS_MAX = 100.0
BUFFER_BYTES = 1 << 22


class Fault(enum.Enum):
    """What may happen to a round trip."""

    CUT_BEFORE = "cut before the server has heard of it"
    CUT_AFTER = "executed, then cut before the client has heard of it"
    LATE = "cut, and what the client had sent reaches the server some time later"
    BLACK_HOLE = "executed, but neither this nor any later answer comes; the connection stays"


class Trip(msgspec.Struct, frozen=True):
    """A round trip that has begun."""

    connection: int
    messages: str
    """The letters of what the client sent."""
    sql: str
    """The statements that were parsed in it."""


class Proxy:
    """One address in front of one server."""

    def __init__(self, cluster: Cluster, *, late_seconds: float = 0.3) -> None:
        self.trips: list[Trip] = []
        self.connections = 0
        self.struck = threading.Event()
        """Set when the planned fault has happened."""
        self.delay_seconds = 0.0
        """Added to each answer."""
        self.port = 0
        self._cluster = cluster
        self._late_seconds = late_seconds
        self._countdown = 0
        self._fault = Fault.CUT_BEFORE
        self._silent = False
        self._refusing = False
        self._links: set[_Link] = set()
        self._late: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Proxy:
        self._thread.start()
        self._ask(self._listen())
        return self

    def __exit__(self, *error: object) -> None:
        self._ask(self._hang_up())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_SECONDS_MAX)
        self._loop.close()

    def url(self, schema: str = "", **parameters: str) -> str:
        """The URL of a store behind it."""
        query = urlencode({**({"schema": schema} if schema else {}), **parameters}, safe="/")
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres" + (f"?{query}" if query else "")

    # -- faults -------------------------------------------------------------------------------------------------

    def strike(self, number: int, fault: Fault) -> None:
        """Break the n-th round trip from now, whoever makes it; once."""

        async def plan() -> None:
            self.struck.clear()
            self._countdown, self._fault = number, fault

        self._ask(plan())

    def cut(self) -> None:
        """Every connection breaks now, in both directions."""
        self._ask(self._cut())

    def refuse(self) -> None:
        """As a dead machine: connections break, new ones too."""
        self._refusing = True
        self.cut()

    def black_hole(self) -> None:
        """From now on nobody is answered, and nobody is told so: old connections stay, new ones are accepted."""
        self._silent = True

    def heal(self) -> None:
        """All is well again for new connections. Those that lost an answer can never be."""
        self._silent = self._refusing = False
        self._countdown = 0
        self.delay_seconds = 0.0

    def settle(self) -> None:
        """Wait until everything that was late has arrived, and the server is through with it."""
        self._ask(self._settle())

    def lead_to(self, cluster: Cluster) -> None:
        """New connections go to another server, as an address does that moves in a failover."""
        self._cluster = cluster

    # -- what links ask -----------------------------------------------------------------------------------------

    def begin(self, trip: Trip) -> Fault | None:
        """A round trip begins: what shall happen to it?"""
        self.trips.append(trip)
        if self._countdown:
            self._countdown -= 1
            if not self._countdown:
                self.struck.set()
                return self._fault
        return None

    @property
    def silent(self) -> bool:
        return self._silent

    def deliver_late(self, send: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do it later, when the client has given up long ago."""

        async def later() -> None:
            await asyncio.sleep(self._late_seconds)
            await send()

        task = asyncio.ensure_future(later())
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    # -- inside -------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _ask(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_SECONDS_MAX)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=BUFFER_BYTES)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            writer.transport.abort()
            return
        self.connections += 1
        link = _Link(self, self.connections, reader, writer)
        self._links.add(link)
        try:
            await link.serve(f"{self._cluster.folder}/.s.PGSQL.{self._cluster.port}")
        finally:
            self._links.discard(link)
            link.end()

    async def _settle(self) -> None:
        while self._late or any(link.is_detached for link in self._links):
            await asyncio.sleep(0.005)

    async def _cut(self) -> None:
        for link in list(self._links):
            link.cut()

    async def _hang_up(self) -> None:
        self._server.close()
        for task in list(self._late):
            task.cancel()
        for link in list(self._links):
            link.end()
        while self._links:
            await asyncio.sleep(0.005)


class _Link:
    """One client and its connection to the server."""

    def __init__(self, proxy: Proxy, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._number = number
        self._from_client, self._to_client = reader, writer
        self._from_server: asyncio.StreamReader
        self._to_server: asyncio.StreamWriter
        self._is_connected = False
        self._owed = 0
        """How many ReadyForQuery the server owes."""
        self._muted = False
        self._doomed = False
        """Cut as soon as the server is through."""
        self.is_detached = False
        """The client is gone, and something of it is still on its way."""

    async def serve(self, address: str) -> None:
        code, opening = await self._read_opening()
        if not opening:
            return
        try:
            self._from_server, self._to_server = await asyncio.open_unix_connection(address, limit=BUFFER_BYTES)
        except OSError:
            return  # no server there: the client sees a closed connection, as behind any balancer
        self._is_connected = True
        self._to_server.write(opening)
        if code == wire.CANCEL:
            await self._to_server.drain()
            self._to_server.close()
            return
        answers = asyncio.ensure_future(self._answers())
        with suppress(OSError):
            await self._requests()
        if not self.is_detached:
            self._to_server.close()
        await answers

    def cut(self) -> None:
        """Both directions, at once."""
        self._to_client.transport.abort()
        if self._is_connected and not self.is_detached:
            self._to_server.transport.abort()

    def end(self) -> None:
        """The same, and nothing arrives late any more."""
        self.is_detached = False
        self.cut()

    async def _read_opening(self) -> tuple[int, bytes]:
        """Encryption is refused: what is inside could not be read."""
        with suppress(asyncio.IncompleteReadError, OSError):
            while True:
                code, opening = await wire.read_opening(self._from_client)
                if code not in (wire.SSL, wire.GSS):
                    return code, opening
                self._to_client.write(wire.REFUSED)
        return 0, b""

    async def _requests(self) -> None:
        """Client to server, a turn at a time."""
        turn: list[bytes] = []
        async for message in wire.messages(self._from_client):
            if message[0] in wire.PASSING:
                self._to_server.write(message)
                continue
            turn.append(message)
            if message[0] not in wire.TURNING:
                continue
            if wire.asks(turn) and self._owed == 0:
                fault = self._proxy.begin(self._trip(turn))
                if fault is not None and not self._suffer(fault, turn):
                    return
            self._owed += sum(map(wire.is_answered_by_ready, turn))
            self._to_server.write(b"".join(turn))
            await self._to_server.drain()
            turn = []

    def _trip(self, turn: list[bytes]) -> Trip:
        letters = "".join(chr(message[0]) for message in turn)
        return Trip(self._number, letters, "; ".join(filter(None, map(wire.query_of, turn))))

    def _suffer(self, fault: Fault, turn: list[bytes]) -> bool:
        """Whether the turn goes on to the server now."""
        if fault is Fault.CUT_AFTER:
            self._doomed = True
            return True
        if fault is Fault.BLACK_HOLE:
            self._muted = True
            return True
        if fault is Fault.LATE:
            self.is_detached = True
            self._proxy.deliver_late(lambda: self._send_late(turn))
        self.cut()
        return False

    async def _send_late(self, turn: list[bytes]) -> None:
        """What was on its way when the line broke."""
        with suppress(OSError):
            self._to_server.write(b"".join(turn))
            await self._to_server.drain()
            self._to_server.write_eof()

    async def _answers(self) -> None:
        """Server to client."""
        async for message in wire.messages(self._from_server):
            if message[0] == wire.READY and self._owed:
                self._owed -= 1
                if self._doomed and not self._owed:
                    self.cut()
                    return
            if self._muted or self._doomed or self.is_detached or self._proxy.silent:
                continue
            if self._proxy.delay_seconds and message[0] == wire.READY:
                await asyncio.sleep(self._proxy.delay_seconds)
            with suppress(OSError):
                self._to_client.write(message)
                await self._to_client.drain()
        self._to_client.close()
