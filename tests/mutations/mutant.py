"""One deliberate fault."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Edit:
    """A piece of a file of src/perdure, which must be there exactly once, and what stands there instead."""

    file: str
    old: str
    new: str


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
    name: str, breaks: str, test: str, file: str, old: str, new: str, *more: Edit, hangs: bool = False
) -> Mutant:
    """A row of the list; `more` edits only where one place alone would contradict another."""
    return Mutant(name, breaks, test, (Edit(file, old, new), *more), hangs)
