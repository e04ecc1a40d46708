"""One deliberate fault."""

from __future__ import annotations

from dataclasses import dataclass

from tests.mutations.edit import Edit


@dataclass(frozen=True)
class Mutant:
    """A fault, what it breaks in the words of a user, and the test that must fail on it."""

    name: str
    breaks: str
    test: str
    """`conformance/test_steps.py::test_...`, below tests/."""
    edits: tuple[Edit, ...]
    hangs: bool = False
    """The test waits for something that a broken Perdure never does: then, and only then, a timeout is a failure."""


def mutant(
    name: str, breaks: str, test: str, where: str, change: tuple[str, str], *more: Edit, hangs: bool = False
) -> Mutant:
    """A row: `change` is old and new code, `more` only where one place alone would contradict another."""
    return Mutant(name, breaks, test, (Edit(where, *change), *more), hangs)
