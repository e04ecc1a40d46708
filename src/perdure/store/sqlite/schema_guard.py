"""Keeps a store file from running SQL of its own.

A SQLite file can carry code: triggers, views, and expressions in tables and indexes. The author of a file chooses that
code, so every connection first compares the definitions in the file with those of its schema version. Tables of other
programs are ignored, because Perdure never reads them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

import apsw
import msgspec

from perdure.errors import StoreTampered
from perdure.store import sql
from perdure.store.schema_version import unpublished_error

SchemaObject = tuple[str, str, str, str]
"""Type, name, table and SQL of an object; an automatic index has no SQL."""

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
"""The second line of defence: code that is planted while the file is open does not run either."""

SHOWN_MAX = 3
_STATISTICS = "sqlite_stat"
_accepted: set[tuple[int, bytes]] = set()
"""Versions and digests that passed the full comparison: files with tables of other programs."""


def harden(connection: apsw.Connection) -> None:
    """Disable everything that lets a file run code, without reading the file."""
    for option, value in SETTINGS:
        if connection.config(option, value) != value:
            raise StoreTampered(f"SQLite refused to set option {option} to {value}", hint="install a current apsw")
    connection.pragma("cell_size_check", 1)


def refuse_altered(connection: apsw.Connection, path: str, version: int) -> None:
    """Raise unless the file has exactly the definitions of the schema version; run none of them.

    A version that this program does not know is left to `StoreVersions.refuse_newer`.
    """
    if version > len(sql.migrations("sqlite")):
        return
    if version < 0:
        raise _tampered_error(connection, path, [f"schema version {version}"])
    found = definitions(connection)
    known = (version, digest(found))
    if known in _accepted or known[1] == sql.digests("sqlite").get(version):
        return
    if differences := sorted(_differences(found, build_expected(version))):
        raise _tampered_error(connection, path, [text for _, text in differences])
    _accepted.add(known)


def refuse_unpublished(connection: apsw.Connection, path: str) -> None:
    """Refuse a store of a development version, which has other tables under the same schema number."""
    names = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name IN ('homes', 'journal')")
    if names.fetchall() == [("homes",)]:
        _leave_log(connection)
        raise unpublished_error(path)


def definitions(connection: apsw.Connection) -> list[SchemaObject]:
    """Return the definitions of a database in a fixed order, without the statistics of ANALYZE."""
    rows = connection.execute("SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_schema")
    texts = [(str(kind), str(name), str(table), str(text)) for kind, name, table, text in rows]
    return sorted(row for row in texts if row[0] != "table" or not row[1].startswith(_STATISTICS))


def digest(found: Sequence[SchemaObject]) -> bytes:
    """Return the SHA-256 of all definitions."""
    return hashlib.sha256(msgspec.msgpack.encode(found)).digest()


def build_expected(version: int) -> dict[str, SchemaObject]:
    """Return the definitions that the migrations of a schema version create, by lower-case name."""
    return _build_from_migrations(sql.migrations("sqlite")[:version])


@cache
def _build_from_migrations(history: tuple[str, ...]) -> dict[str, SchemaObject]:
    connection = apsw.Connection(":memory:")
    try:
        for text in history:
            connection.execute(text).fetchall()
        return {row[1].lower(): row for row in definitions(connection)}
    finally:
        connection.close()


def _differences(found: Iterable[SchemaObject], ours: dict[str, SchemaObject]) -> Iterator[tuple[int, str]]:
    """Yield the differences between a file and its schema version, with a rank that puts possible code first.

    A name that any version uses is reserved, in upper and lower case.
    """
    reserved = ours.keys() | build_expected(len(sql.migrations("sqlite"))).keys()
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


def _tampered_error(connection: apsw.Connection, path: str, differences: list[str]) -> StoreTampered:
    _leave_log(connection)
    more = len(differences) - SHOWN_MAX
    shown = ", ".join(differences[:SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")
    return StoreTampered(f"{path} has a schema that Perdure did not create: {shown}. Nothing in it was run or changed")


def _leave_log(connection: apsw.Connection) -> None:
    """Leave a refused file as it is: closing its last connection would checkpoint the log into it."""
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
