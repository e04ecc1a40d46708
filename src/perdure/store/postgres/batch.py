"""Merges many statements of one kind into one with arrays: the overhead per statement exceeds its work.

Only commits of many keys have that many statements. The merging is invisible to callers: each statement gets its rows.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from perdure.store import sql
from perdure.store.base import Rows, Statement

MANY_MIN = 16
"""From this number on, merging is faster."""
MANY_MAX = 1000
"""The limit per statement, which has a timeout and holds its arrays in memory twice."""

TEXT = {f"{name}[]": sql.number_parameters(named, "$").encode() for name, named in sql.load("postgres_many").items()}

_KIN = {"get_agent_state": "reads", "set_agent_state": "writes", "add_state_history": "writes"}
"""Statements of one group may be reordered: they only read, or write to different tables."""
_KEYED = {"set_agent_state": 3}
"""How many leading arguments are the row's key; a merged statement must not change a row twice."""

_BYTEA, _TEXT = 17, 25
_LENGTH = struct.Struct(">i").pack


class MergedStatements:
    """The statements to send, and which given ones each stands for."""

    __slots__ = ("_given", "_places", "sent")

    def __init__(self, statements: Sequence[Statement]) -> None:
        self.sent: list[Statement] = []
        self._given = statements
        self._places: list[Sequence[int]] = []
        for kin, places in groupby(range(len(statements)), self._batch_key):
            if kin is None:
                self._send_alone(places)
                continue
            alike: dict[str, list[int]] = {}
            for place in places:
                alike.setdefault(statements[place].name, []).append(place)
            for name, its in alike.items():
                for first in range(0, len(its), MANY_MAX):
                    self._send(name, its[first : first + MANY_MAX])

    def distribute_rows(self, answers: Sequence[Rows]) -> list[Rows]:
        """Distribute the rows of the sent statements to the given ones."""
        rows: list[Rows] = [[] for _ in self._given]
        for sent, places, found in zip(self.sent, self._places, answers, strict=True):
            if sent.name in TEXT:
                for row in found:
                    rows[places[row[0] - 1]].append(row[1:])
            else:
                rows[places[0]] = found
        return rows

    def _batch_key(self, place: int) -> str | None:
        statement = self._given[place]
        return _KIN.get(statement.name) if statement.must is None else None

    def _send(self, name: str, places: Sequence[int]) -> None:
        columns = list(zip(*[self._given[place].args for place in places], strict=True))
        keyed = _KEYED.get(name, 0)
        if len(places) < MANY_MIN or (keyed and len(set(zip(*columns[:keyed], strict=True))) < len(places)):
            self._send_alone(places)
        else:
            self.sent.append(_many(name, columns))
            self._places.append(places)

    def _send_alone(self, places: Iterable[int]) -> None:
        for place in places:
            self.sent.append(self._given[place])
            self._places.append((place,))


def merged(name: str, statements: Sequence[Statement]) -> Statement:
    """Return one statement for several of this name, which the caller may run in any order."""
    return _many(name, list(zip(*[statement.args for statement in statements], strict=True)))


def _many(name: str, columns: Sequence[Sequence[Any]]) -> Statement:
    return Statement(f"{name}[]", tuple(map(_array, columns)))


def _array(column: Sequence[Any]) -> str | bytes:
    """Encode a column: numbers as a text array, texts and bytes as a binary array without quoting."""
    if isinstance(column[0], int):
        return "{" + ",".join(map(str, column)) + "}"
    if isinstance(column[0], str):
        return _binary(_TEXT, [value.encode() for value in column])
    return _binary(_BYTEA, column)


def _binary(kind: int, values: Sequence[bytes]) -> bytes:
    """Encode PostgreSQL's binary array: dimensions, NULL flag, type, count, lower bound; then length and data each."""
    return struct.pack(">5i", 1, 0, kind, len(values), 1) + b"".join([_LENGTH(len(data)) + data for data in values])
