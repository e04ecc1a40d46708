"""The code that a mutant changes is there: told in seconds, and not only by the mutations themselves."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from tests.mutations.broken_copies import ROOT
from tests.mutations.edit import BadMutant, Edit
from tests.mutations.mutants import MUTANTS


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def trouble(edit: Edit) -> str:
    """Why the edit cannot be made, if it cannot."""
    try:
        path = edit.path(ROOT)
        edit.find_in_sql(path.read_text("utf-8")) if path.suffix == ".sql" else edit.find(parse(path))
    except BadMutant as error:
        return str(error)
    return ""


def test_every_mutant_names_a_test_that_exists() -> None:
    missing = []
    for one in MUTANTS:
        path, _, name = one.test.partition("::")
        text = (ROOT / "tests" / path).read_text("utf-8")
        if f"def {name.partition('[')[0].rpartition('::')[2]}(" not in text:
            missing.append(f"{one.name}: {one.test}")
    assert missing == []


def test_who_changes_code_changes_its_mutants() -> None:
    """The anchor of each exists, and has the old code once."""
    found = [f"{one.name}: {why}" for one in MUTANTS for edit in one.edits if (why := trouble(edit))]
    assert not found, "\n\n".join(found)
