"""How the schema of a store compares with what this program knows, and what would bring it forward."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from ..errors import StoreTooNew
from . import sql

_COMMENT: Final = re.compile(r"--[^\n]*")
_NEW_TABLE: Final = re.compile(r"CREATE (?:VIRTUAL )?TABLE (?!temp\b)(\w+)")
_REMADE: Final = re.compile(r"DROP TABLE (?!temp\b)(\w+)")
_WIDER: Final = re.compile(r"ALTER TABLE (\w+) ADD COLUMN")
_TOUCHED: Final = re.compile(
    r"\b(?:CREATE (?:UNIQUE )?INDEX \w+ ON|ALTER TABLE|UPDATE|INSERT (?:OR \w+ )?INTO|DELETE FROM) (\w+)"
)


class Step(msgspec.Struct, frozen=True):
    """One migration, and what it does to a store that has data."""

    number: int
    name: str
    adds: tuple[str, ...]
    """New tables. They are empty: it takes milliseconds, whatever the size of the store."""
    widens: tuple[str, ...]
    """Tables that get a column more, as quickly."""
    goes_through: tuple[str, ...]
    """Tables of which every row may be looked at or written anew; nobody else writes meanwhile."""
    makes_views_anew: bool = False
    """Whether old entries belong to a view that it adds: then all views are made anew from the journal, after it."""


class Versions(msgspec.Struct, frozen=True):
    """A store beside this program."""

    found: int
    """The store's schema: how many migrations it has had."""
    oldest: int
    """How many of them a program must know to work with it."""
    known: int
    """How many this program knows."""
    steps: tuple[Step, ...]
    """What is to be done to it, in one transaction."""

    def refuse_newer(self) -> None:
        """Raise when the store is ahead of this program."""
        if self.oldest > self.known:
            takes = f", for programs that know {self.oldest} or more" if self.oldest != self.found else ""
            raise StoreTooNew(
                f"the store has schema {self.found}{takes}; this version of Perdure knows schema {self.known}"
            )


def compared(dialect: str, found: int, oldest: int) -> Versions:
    """A store of that schema beside this program."""
    history = sql.history(dialect)
    steps, new = list[Step](), set[str]()
    for number, name, text in history[found:]:
        step = _step(number, name, text, new)
        steps.append(step)
        new.update(step.adds)
    return Versions(found, oldest, len(history), tuple(steps))


def _step(number: int, name: str, text: str, new: set[str]) -> Step:
    """What a migration does; in a table of `new`, which an earlier step has added, there is nothing to go through."""
    statements = [" ".join(piece.split()) for piece in _COMMENT.sub("", text).split(";")]
    remade = [name for statement in statements for name in _REMADE.findall(statement)]
    adds = [name for statement in statements for name in _NEW_TABLE.findall(statement) if name not in remade]
    widens = [name for statement in statements for name in _WIDER.findall(statement)]
    anew = any("INSERT INTO meta" in statement and "'stale'" in statement for statement in statements)
    through = [
        name
        for statement in statements
        if not _WIDER.match(statement)
        for name in _TOUCHED.findall(statement)
        if name not in (*adds, *new, "meta")
    ]
    return Step(number, name, tuple(adds), tuple(dict.fromkeys(widens)), tuple(dict.fromkeys(through)), anew)
