"""As much of PostgreSQL's protocol as a proxy must understand: where messages end, and whose turn it is."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator

CANCEL, SSL, GSS = 80877102, 80877103, 80877104
REFUSED = b"N"
"""The answer to who wants encryption."""

# After one of these the client may be waiting for an answer: Query, Sync, Flush, FunctionCall, and what authenticates.
TURNING = frozenset(b"QSHFp")
# These go on at once: rows of a COPY, and goodbye.
PASSING = frozenset(b"dcfX")
READY = ord("Z")
FAILED = ord("E")


def kind_of(message: bytes) -> int:
    return message[0]


def is_answered_by_ready(message: bytes) -> bool:
    """Whether the server says ReadyForQuery when it is through with this one."""
    return message[0] in b"QSF"


def asks(turn: list[bytes]) -> bool:
    """Whether the client waits for what the server says to it: not who it is, nor a Flush of nothing, which libpq may
    send when all answers are there already."""
    return turn[-1][0] != ord("p") and [message[0] for message in turn] != [ord("H")]


async def read_opening(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """The first message of a connection, which alone has no letter in front: its code, and all of it."""
    head = await reader.readexactly(8)
    length, code = struct.unpack("!II", head)
    return code, head + await reader.readexactly(length - 8)


async def messages(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Each message, whole, until the other side hangs up."""
    while True:
        try:
            head = await reader.readexactly(5)
            (length,) = struct.unpack("!I", head[1:])
            yield head + await reader.readexactly(length - 4)
        except (asyncio.IncompleteReadError, OSError):
            return


def query_of(message: bytes) -> str:
    """The SQL in a Query or Parse; empty for others."""
    if message[0] == ord("Q"):
        return message[5:].rstrip(b"\0").decode(errors="replace")
    if message[0] == ord("P"):
        return message[5:].split(b"\0", 2)[1].decode(errors="replace")
    return ""
