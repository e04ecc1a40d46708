"""What client and server say to each other: named statements and rows, as MessagePack with a closed set of types.

A request carries all batches of a unit so far and a summary of the rows that the client has seen. The server replays
them in one transaction of its own, so no transaction ever waits for a client.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from functools import cache
from hashlib import blake2b
from typing import Any, TypeVar

import msgspec

from perdure import errors
from perdure.errors import PerdureError, StoreUnavailable
from perdure.store.base import Overtaken, RowRefused, Rows, Statement, UnitOfWork

PROTOCOL = 1
"""Raised when a client and a server of different versions would misunderstand each other."""

COMMIT, READ, FACTS = "/v1/store/commit", "/v1/store/read", "/v1/store/facts"
WATCH, SCRUB = "/v1/store/watch", "/v1/store/scrub"
MEDIA_TYPE = "application/msgpack"

BATCHES_MAX = 256
"""Batches of one unit: each request repeats them, so the work grows with the square."""

SqlValue = Any
"""One of SQL_TYPES; msgspec cannot check a union of text and bytes, so the server does."""
SQL_TYPES = frozenset({int, float, str, bytes, bool, type(None)})
T = TypeVar("T")


class WireStatement(msgspec.Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """A statement; `must` is the name of an error class."""

    name: str
    args: tuple[SqlValue, ...] = ()
    must: str = ""


class SeenRows(msgspec.Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """A summary of the rows of a batch: equal rows have equal digests."""

    digest: bytes
    left: tuple[int | None, ...] = ()
    """The milliseconds that holders had left, which are not in the digest: they pass with every replay."""


class WireUnit(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A unit of work as far as its script has run."""

    site: str
    batches: tuple[tuple[WireStatement, ...], ...]
    seen: tuple[SeenRows, ...] = ()
    """The rows of the first batches. All but the last batch have been seen; all of them if the script has ended."""
    commit: bool = False
    snapshot: bool = False
    long: bool = False
    erases: bool = False
    turn: str = ""
    """A token after repeated overtaking: the server lets units with a turn go first."""


class CommitRequest(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Units of different lanes; each has an outcome of its own."""

    units: tuple[WireUnit, ...]


class UnitProgress(IntEnum):
    """What became of a unit."""

    ROWS = 0
    """The batches were replayed, and rolled back; here are the rows of the last one."""
    COMMITTED = 1
    OVERTAKEN = 2
    """A batch has other rows than the client has seen; nothing was committed."""
    FAILED = 3
    """An error; nothing was committed."""


class WireError(msgspec.Struct, frozen=True, array_like=True):
    """An error of the store, by the name of its class."""

    name: str
    message: str
    hint: str = ""


class UnitOutcome(msgspec.Struct, frozen=True, array_like=True):
    """The answer to a unit."""

    progress: int
    rows: list[list[tuple[SqlValue, ...]]] = []
    """The rows of the last batch, or of the batch that differs."""
    index: int = 0
    """The batch that differs."""
    error: WireError | None = None


class ReadRequest(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Independent queries."""

    queries: tuple[WireStatement, ...]


class ReadAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The rows of each query, or an error."""

    rows: list[list[tuple[SqlValue, ...]]] = []
    error: WireError | None = None


class WatchRequest(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Streams that wait for an answer."""

    streams: tuple[int, ...]
    seconds: float


class RemoteFacts(msgspec.Struct, frozen=True):
    """What a client must know of a store. The store's secret is not among it."""

    protocol: int
    identity: str
    content_key: bytes
    statements: bytes
    """The digest of all statement names and parameters: both sides must mean the same."""
    read_only: str = ""
    doubts: dict[str, bytes] = {}
    scrubs: bool = False
    """Whether erasing leaves something in the files that `scrub` removes."""


class ScrubRequest(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Remove erased texts from the files."""

    texts: tuple[bytes, ...]
    token: str


def _encode_other(value: Any) -> bytes:
    """Encode `Floats` as their bytes; the server knows the parameters that are vectors."""
    if isinstance(value, bytes):
        return bytes(value)
    raise NotImplementedError(f"{type(value).__name__} is no value of SQL")


encode = msgspec.msgpack.Encoder(enc_hook=_encode_other).encode
decode_commit = msgspec.msgpack.Decoder(CommitRequest).decode
decode_outcomes = msgspec.msgpack.Decoder(list[UnitOutcome]).decode
decode_read = msgspec.msgpack.Decoder(ReadRequest).decode
decode_rows = msgspec.msgpack.Decoder(ReadAnswer).decode
decode_watch = msgspec.msgpack.Decoder(WatchRequest).decode
decode_scrub = msgspec.msgpack.Decoder(ScrubRequest).decode
decode_facts = msgspec.msgpack.Decoder(RemoteFacts).decode

LEFT_COLUMN = {"read_lease": 8, "holder_time_left": 0, "get_holder": 6, "holders_at_work": 7, "held_tasks": 11}
"""The column with the milliseconds that a holder has left, by the server's clock."""


def write_statements(statements: Iterable[Statement]) -> tuple[WireStatement, ...]:
    """Encode a batch of a script."""
    return tuple(WireStatement(one.name, one.args, "" if one.must is None else one.must.__name__) for one in statements)


def write_unit(unit: UnitOfWork[Any], batches: Sequence[tuple[WireStatement, ...]], **fields: Any) -> WireUnit:
    """Describe a unit as far as its script has run."""
    return WireUnit(
        unit.site.value, tuple(batches), snapshot=unit.snapshot, long=unit.long, erases=unit.erases, **fields
    )


def summarize_rows(statements: Sequence[WireStatement], rows: Sequence[Rows]) -> SeenRows:
    """Summarize the rows of a batch."""
    left: list[int | None] = []
    steady: Sequence[Rows] = rows
    if any(statement.name in LEFT_COLUMN for statement in statements):
        steady = [
            [_take_left(row, LEFT_COLUMN[statement.name], left) for row in found]
            if statement.name in LEFT_COLUMN
            else found
            for statement, found in zip(statements, rows, strict=True)
        ]
    return SeenRows(blake2b(encode(steady), digest_size=16).digest(), tuple(left))


def _take_left(row: tuple[Any, ...], column: int, left: list[int | None]) -> tuple[Any, ...]:
    left.append(row[column])
    return (*row[:column], None, *row[column + 1 :])


def are_still_true(seen: SeenRows, now: SeenRows) -> bool:
    """Whether rows are those that were seen, and no holder has renewed its lease since."""
    if seen.digest != now.digest or len(seen.left) != len(now.left):
        return False
    return all(
        (before is None and after is None) or (before is not None and after is not None and after <= before)
        for before, after in zip(seen.left, now.left, strict=True)
    )


@cache
def error_classes() -> dict[str, type[PerdureError]]:
    """Return the error classes that may travel, by name."""
    found = {name: cls for name, cls in vars(errors).items() if isinstance(cls, type) and issubclass(cls, PerdureError)}
    return found | {"Overtaken": Overtaken, "RowRefused": RowRefused}


def write_error(error: PerdureError) -> WireError:
    """Encode an error of the store."""
    return WireError(type(error).__name__, error.message, error.hint)


def read_error(error: WireError) -> PerdureError:
    """Decode an error of the server."""
    cls = error_classes().get(error.name)
    if cls is None:
        return StoreUnavailable(f"the server reports {error.name}: {error.message}", hint=error.hint)
    return cls(error.message, hint=error.hint)


@cache
def digest_statements() -> bytes:
    """Return the digest of the names and parameters of all statements."""
    from perdure.store import sql

    named = sorted((one.name, one.parameters) for one in sql.load("sqlite").values())
    return blake2b(encode(named), digest_size=16).digest()
