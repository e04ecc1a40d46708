"""A store file runs no SQL of its own: only the tables and indexes that Perdure made may be in its way.

A SQLite file carries code: triggers, views, and expressions in the definitions of tables and indexes. Whoever hands
over a file chooses that code, so every connection compares the definitions in the file with those of its schema
version before it does anything else. Tables of other programs are ignored, nothing of ours reads them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

import apsw
import msgspec

from ..errors import StoreTampered
from . import sql

Definition = tuple[str, str, str, str]
"""Type, name, table and text of an object; the text is empty for an index that SQLite makes by itself."""

SETTINGS = (
    (apsw.SQLITE_DBCONFIG_DEFENSIVE, 1),
    (apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0),
    (apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0),
    (apsw.SQLITE_DBCONFIG_ENABLE_VIEW, 0),
    (apsw.SQLITE_DBCONFIG_ENABLE_FKEY, 0),
    (apsw.SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0),
    (apsw.SQLITE_DBCONFIG_ENABLE_FTS3_TOKENIZER, 0),
    (apsw.SQLITE_DBCONFIG_WRITABLE_SCHEMA, 0),
)
"""The second line of defence: also what is planted while the file is open does not run."""

SHOWN_MAX = 3
_STATISTICS = "sqlite_stat"
_accepted: set[tuple[int, bytes]] = set()
"""Versions and digests that this process has compared in full: files with tables of other programs."""


def harden(connection: apsw.Connection) -> None:
    """Switch off whatever lets a file run code; reads nothing of the file."""
    for option, value in SETTINGS:
        if connection.config(option, value) != value:
            raise StoreTampered(f"SQLite would not set option {option} to {value}", hint="install a current apsw")
    connection.pragma("cell_size_check", 1)


def refuse_altered(connection: apsw.Connection, path: str, version: int) -> None:
    """Raise unless the file has exactly the definitions of that schema version; runs none of them.

    A version that this program does not know is left to `Versions.refuse_newer`.
    """
    if version > len(sql.migrations("sqlite")):
        return
    if version < 0:
        raise _refused(connection, path, [f"schema version {version}"])
    found = definitions(connection)
    known = (version, digest(found))
    if known in _accepted or known[1] == sql.digests("sqlite").get(version):
        return
    if differences := sorted(_differences(found, expected(version))):
        raise _refused(connection, path, [text for _, text in differences])
    _accepted.add(known)


def definitions(connection: apsw.Connection) -> list[Definition]:
    """What the schema of a database consists of, in a fixed order; without the statistics of ANALYZE."""
    rows = connection.execute("SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_schema")
    texts = [(str(kind), str(name), str(table), str(text)) for kind, name, table, text in rows]
    return sorted(row for row in texts if row[0] != "table" or not row[1].startswith(_STATISTICS))


def digest(found: Sequence[Definition]) -> bytes:
    """One number for all definitions."""
    return hashlib.sha256(msgspec.msgpack.encode(found)).digest()


def expected(version: int) -> dict[str, Definition]:
    """The definitions of a schema version by lower-case name, as its migrations make them."""
    return _made_by(sql.migrations("sqlite")[:version])


@cache
def _made_by(history: tuple[str, ...]) -> dict[str, Definition]:
    connection = apsw.Connection(":memory:")
    try:
        for text in history:
            connection.execute(text).fetchall()
        return {row[1].lower(): row for row in definitions(connection)}
    finally:
        connection.close()


def _differences(found: Iterable[Definition], ours: dict[str, Definition]) -> Iterator[tuple[int, str]]:
    """What in a file is not as its schema version has it, and its rank in a message: what could run code first.

    A name that is ours in any version, in any case, is reserved.
    """
    reserved = ours.keys() | expected(len(sql.migrations("sqlite"))).keys()
    left = dict(ours)
    for row in found:
        kind, name, table, _ = row
        if left.get(name.lower()) == row:
            del left[name.lower()]
        elif kind not in ("table", "index"):
            yield 0, f"{kind} {name!r}"
        elif name.lower() in reserved:
            yield _rank(kind), f"another definition of {kind} {name!r}"
            left.pop(name.lower(), None)
        elif kind == "index" and table.lower() in reserved:
            yield _rank(kind), f"index {name!r} on table {table!r}"
    yield from ((_rank(kind), f"no {kind} {name!r}") for kind, name, _, _ in left.values())


def _rank(kind: str) -> int:
    return 1 if kind == "table" else 2


def _refused(connection: apsw.Connection, path: str, differences: list[str]) -> StoreTampered:
    # Closing the last connection would fold the log into the file.
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    more = len(differences) - SHOWN_MAX
    shown = ", ".join(differences[:SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")
    return StoreTampered(f"{path} is not as Perdure made it: it has {shown}. Nothing in it was run or changed")
