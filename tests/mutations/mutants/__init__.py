"""The list: one module for each thing that is broken."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from tests.mutations.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = tuple(
    one for found in pkgutil.iter_modules(__path__) for one in import_module(f"{__name__}.{found.name}").MUTANTS
)
