"""Many statements of one kind go to a server as one, with arrays: each by itself costs it more than what it does.

Only a commit of many keys has so many. Whoever made the statements does not know: each of them gets its rows.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from . import sql
from .base import Rows, Statement

MANY_MIN = 16
"""From so many on it is quicker together."""
MANY_MAX = 1000
"""So many at most: a statement has a time limit, and its arrays are in memory twice."""

TEXT = {f"{name}[]": sql.numbered(named, "$").encode() for name, named in sql.load("postgres_many").items()}

_KIN = {"get_entry": "reads", "set_entry": "writes", "add_history": "writes"}
"""Those of one kin may change places: they only read, or write to tables of their own."""
_KEYED = {"set_entry": 3}
"""By how many of its first arguments a row is known, where a statement must not change one twice."""

_BYTEA, _TEXT = 17, 25
_LENGTH = struct.Struct(">i").pack


class Gathered:
    """Statements as they are sent, and for which of the given ones each stands."""

    __slots__ = ("_given", "_places", "sent")

    def __init__(self, statements: Sequence[Statement]) -> None:
        self.sent: list[Statement] = []
        self._given = statements
        self._places: list[Sequence[int]] = []
        for kin, places in groupby(range(len(statements)), self._kin):
            if kin is None:
                self._send_alone(places)
                continue
            alike: dict[str, list[int]] = {}
            for place in places:
                alike.setdefault(statements[place].name, []).append(place)
            for name, its in alike.items():
                for first in range(0, len(its), MANY_MAX):
                    self._send(name, its[first : first + MANY_MAX])

    def spread(self, answers: Sequence[Rows]) -> list[Rows]:
        """The rows of what was sent, as those of what was given."""
        rows: list[Rows] = [[] for _ in self._given]
        for sent, places, found in zip(self.sent, self._places, answers, strict=True):
            if sent.name in TEXT:
                for row in found:
                    rows[places[row[0] - 1]].append(row[1:])
            else:
                rows[places[0]] = found
        return rows

    def _kin(self, place: int) -> str | None:
        statement = self._given[place]
        return _KIN.get(statement.name) if statement.must is None else None

    def _send(self, name: str, places: Sequence[int]) -> None:
        columns = list(zip(*[self._given[place].args for place in places], strict=True))
        keyed = _KEYED.get(name, 0)
        if len(places) < MANY_MIN or (keyed and len(set(zip(*columns[:keyed], strict=True))) < len(places)):
            self._send_alone(places)
        else:
            self.sent.append(Statement(f"{name}[]", tuple(map(_array, columns))))
            self._places.append(places)

    def _send_alone(self, places: Iterable[int]) -> None:
        for place in places:
            self.sent.append(self._given[place])
            self._places.append((place,))


def _array(column: Sequence[Any]) -> str | bytes:
    """Numbers as people write an array for a server; texts and bytes as it sends one itself, without any quoting."""
    if isinstance(column[0], int):
        return "{" + ",".join(map(str, column)) + "}"
    if isinstance(column[0], str):
        return _binary(_TEXT, [value.encode() for value in column])
    return _binary(_BYTEA, column)


def _binary(kind: int, values: Sequence[bytes]) -> bytes:
    """One dimension, no NULL, the kind of its elements, how many, counted from 1; then each behind its length."""
    return struct.pack(">5i", 1, 0, kind, len(values), 1) + b"".join([_LENGTH(len(it)) + it for it in values])
