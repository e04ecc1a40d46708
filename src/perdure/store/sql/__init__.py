"""Named SQL: `portable/queries.sql` for both dialects, and `queries.sql` of each for what it words differently.

A statement begins with `-- name: put_meta(key, value)` and a line that says why it exists. Arguments are bound by
position in the order of the header; the text names them. Both dialects have the same names and parameters. A statement
that a dialect does not need has no text there.
`postgres_many` has variants of some statements for many rows, `sqlite_copy` the inserts of a backup.
"""

from __future__ import annotations

import os
import re
from functools import cache

import msgspec


class NamedQuery(msgspec.Struct, frozen=True):
    """A statement as written."""

    name: str
    parameters: tuple[str, ...]
    reason: str
    text: str

    @property
    def returns(self) -> bool:
        """Whether the statement returns rows."""
        return self.text.startswith(("SELECT", "PRAGMA")) or "RETURNING" in self.text


_HERE = os.path.dirname(__file__)
_HEADER = re.compile(r"^-- name: (\w+)\(([^)]*)\)\n-- (.+)\n", re.MULTILINE)
_PARAMETER = re.compile(r"(?<![:\w]):(\w+)")


@cache
def load(dialect: str) -> dict[str, NamedQuery]:
    """Return all statements of a dialect by name."""
    text = _read_file(dialect, "queries.sql")
    if dialect in ("sqlite", "postgres"):
        text += _read_file("portable", "queries.sql")
    pieces = _HEADER.split(text)
    named = {}
    for name, parameters, reason, body in zip(pieces[1::4], pieces[2::4], pieces[3::4], pieces[4::4], strict=True):
        names = tuple(p.strip() for p in parameters.split(",") if p.strip())
        named[name] = NamedQuery(name, names, reason, body.strip().rstrip(";"))
    return named


def number_parameters(statement: NamedQuery, marker: str) -> str:
    """Replace each `:name` by the marker and the parameter's position, as in `?1` or `$1`."""
    position = {name: index for index, name in enumerate(statement.parameters, start=1)}
    return _PARAMETER.sub(lambda match: f"{marker}{position[match[1]]}", statement.text)


@cache
def migrations(dialect: str) -> tuple[str, ...]:
    """Return the migrations in order; the version of a schema is the number of its migrations."""
    return tuple(_read_file(dialect, "migrations", name) for name in _names(dialect))


def history(dialect: str) -> list[tuple[int, str, str]]:
    """Return the migrations with number and name: `0001_schema.sql` is (1, "schema", its text)."""
    both = zip(_names(dialect), migrations(dialect), strict=True)
    return [(int(name[:4]), name[5:].removesuffix(".sql"), text) for name, text in both]


@cache
def digests(dialect: str) -> dict[int, bytes]:
    """Return the SHA-256 of all definitions per schema version, written by `tools/schema_digests.py`."""
    lines = (line.split() for line in _read_file(dialect, "digests.txt").splitlines())
    return {int(version): bytes.fromhex(digest) for version, digest in lines}


def _names(dialect: str) -> list[str]:
    return sorted(name for name in os.listdir(os.path.join(_HERE, dialect, "migrations")) if name.endswith(".sql"))


def _read_file(*path: str) -> str:
    with open(os.path.join(_HERE, *path), encoding="utf-8") as file:
        return file.read()


@cache
def find_oldest_schema(dialect: str) -> int:
    """Return the schema that a program must know to use the newest one, as the last migration declares.

    A migration that only adds keeps the number, so that programs of the previous version keep working.
    """
    found = re.match(r"-- oldest: (\d+)\n", migrations(dialect)[-1])
    assert found is not None, "a migration must start with the oldest schema version that can still use it"
    return int(found[1])
