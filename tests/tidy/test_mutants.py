"""The text that a mutant changes is there: told in a second, and not only by the mutations themselves."""

from __future__ import annotations

from tests.mutations.mutants import MUTANTS
from tests.mutations.workshop import ROOT


def test_who_changes_code_changes_its_mutants() -> None:
    """The old text of each must be there, and once."""
    edits = [(one.name, edit) for one in MUTANTS for edit in one.edits]
    counts = {
        (name, edit.file): (ROOT / "src/perdure" / edit.file).read_text("utf-8").count(edit.old) for name, edit in edits
    }
    assert {where: count for where, count in counts.items() if count != 1} == {}
