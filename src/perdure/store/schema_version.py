"""Compares the schema of a store with this program, and describes the migrations between them."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from perdure.errors import StoreTooNew, StoreUnavailable
from perdure.store import sql

_COMMENT: Final = re.compile(r"--[^\n]*")
_NEW_TABLE: Final = re.compile(r"CREATE (?:VIRTUAL )?TABLE (?!temp\b)(\w+)")
_REMADE: Final = re.compile(r"DROP TABLE (?!temp\b)(\w+)")
_WIDER: Final = re.compile(r"ALTER TABLE (\w+) ADD COLUMN")
_TOUCHED: Final = re.compile(
    r"\b(?:CREATE (?:UNIQUE )?INDEX \w+ ON|ALTER TABLE|UPDATE|INSERT (?:OR \w+ )?INTO|DELETE FROM) (\w+)"
)


class MigrationStep(msgspec.Struct, frozen=True):
    """One migration, and its cost for a store that has data."""

    number: int
    name: str
    adds: tuple[str, ...]
    """New, empty tables: takes milliseconds in a store of any size."""
    widens: tuple[str, ...]
    """Tables that get another column: takes milliseconds."""
    goes_through: tuple[str, ...]
    """Tables whose every row may be read or rewritten, while writers wait."""
    makes_views_anew: bool = False
    """Whether all views are rebuilt from the journal afterwards."""


class StoreVersions(msgspec.Struct, frozen=True):
    """The schema versions of a store and of this program."""

    found: int
    """The store's schema: the number of its last migration."""
    oldest: int
    """The schema that a program must know to use the store."""
    known: int
    """The newest schema that this program knows."""
    steps: tuple[MigrationStep, ...]
    """The pending migrations, applied in one transaction."""

    def refuse_newer(self) -> None:
        """Raise StoreTooNew if this program is too old for the store."""
        if self.oldest > self.known:
            takes = f", for programs that know {self.oldest} or more" if self.oldest != self.found else ""
            raise StoreTooNew(
                f"the store has schema {self.found}{takes}; this version of Perdure knows schema {self.known}"
            )


def unpublished_error(shown: str) -> StoreUnavailable:
    """Return the error for a store that was made before the first release."""
    return StoreUnavailable(
        f"{shown} was made by a development version of Perdure, before the first release. It was not changed",
        hint="create a new store with `perdure init`; read the old one with the version that created it",
    )


def compare_versions(dialect: str, found: int, oldest: int) -> StoreVersions:
    """Compare a store of schema `found` with this program."""
    history = sql.history(dialect)
    steps, new = list[MigrationStep](), set[str]()
    for number, name, text in history[found:]:
        step = _step(number, name, text, new)
        steps.append(step)
        new.update(step.adds)
    return StoreVersions(found, oldest, len(history), tuple(steps))


def _step(number: int, name: str, text: str, new: set[str]) -> MigrationStep:
    """Describe a migration; tables in `new`, added by an earlier step, are empty."""
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
    return MigrationStep(number, name, tuple(adds), tuple(dict.fromkeys(widens)), tuple(dict.fromkeys(through)), anew)
