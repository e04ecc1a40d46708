"""The text that a mutant changes is there: told in a second, and not only by the mutations themselves."""

from __future__ import annotations

import pytest

from tests.mutations.mutant import Mutant
from tests.mutations.mutants import MUTANTS
from tests.mutations.workshop import ROOT


@pytest.mark.parametrize("one", MUTANTS, ids=lambda one: one.name)
def test_who_changes_code_changes_its_mutants(one: Mutant) -> None:
    counts = {edit.file: (ROOT / "src/perdure" / edit.file).read_text("utf-8").count(edit.old) for edit in one.edits}
    assert set(counts.values()) == {1}, f"{one.name}: its old text must be there once: {counts}"
