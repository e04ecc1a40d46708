"""Finding and parsing what the rules look at."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE_FOLDERS = ("src", "tests", "tools", "bench", "examples")
PRODUCT_FOLDERS = ("src", "tools", "bench", "examples")
NOT_OURS = {"__pycache__", "build", "dist", "node_modules", "results"}

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Source:
    """A Python file: its path from the root of the repository, and its text."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Every node of the tree, found once for all rules."""
        return tuple(ast.walk(self.tree))

    def locate(self, node: ast.AST) -> str:
        """Where a node is, as editors understand it."""
        return f"{self.path}:{getattr(node, 'lineno', 1)}"

    @cached_property
    def module(self) -> str:
        """The dotted name: src/perdure/cli/main.py is perdure.cli.main, and a package is named as such."""
        parts = list(Path(self.path).with_suffix("").parts)
        parts = parts[1:] if parts[0] == "src" else parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @cached_property
    def package(self) -> str:
        """What a relative import of this file starts from."""
        is_package = self.path.endswith("__init__.py")
        return self.module if is_package else self.module.rpartition(".")[0]

    @cached_property
    def functions(self) -> tuple[tuple[str, FunctionNode], ...]:
        """Every function with its qualified name, as in `Committer._commit_batch`."""
        return tuple(_functions(self.tree, ""))

    def owner_of(self, node: ast.AST) -> str:
        """The qualified name of the innermost function around a node, or `<module>`."""
        owner = "<module>"
        for name, function in self.functions:
            if any(child is node for child in ast.walk(function)):
                owner = name
        return owner


def _functions(parent: ast.AST, prefix: str) -> Iterator[tuple[str, FunctionNode]]:
    for child in ast.iter_child_nodes(parent):
        if isinstance(child, ast.expr):
            continue  # most of the nodes, and none of them holds a statement
        if isinstance(child, FunctionNode):
            yield prefix + child.name, child
        named = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        yield from _functions(child, f"{prefix}{getattr(child, 'name', '')}." if named else prefix)


def is_ours(path: Path, root: Path) -> bool:
    """Not made by a tool: outside of .venv, .git, caches and builds."""
    folders = path.relative_to(root).parts[:-1]
    return not any(part in NOT_OURS or (part.startswith(".") and part != ".ci") for part in folders)


def sources(*folders: str, root: Path = ROOT) -> list[Source]:
    """The Python files of these folders."""
    paths = sorted(path for folder in folders for path in (root / folder).rglob("*.py"))
    return [_read(path, root) for path in paths if is_ours(path, root)]


@cache
def _read(path: Path, root: Path) -> Source:
    return Source(path.relative_to(root).as_posix(), path.read_text(encoding="utf-8"))


@cache
def texts(root: Path = ROOT) -> tuple[tuple[str, str], ...]:
    """Every text file of the repository with its path."""
    return tuple(_read_texts(root))


def _read_texts(root: Path) -> Iterator[tuple[str, str]]:
    for folder, folders, files in os.walk(root):
        # Environments and packages of npm have a hundred times as many files as the repository.
        folders[:] = sorted(name for name in folders if is_ours(Path(folder, name, "file"), root))
        for path in (Path(folder, name) for name in sorted(files)):
            try:
                yield path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue


def expect_none(complaints: Iterable[str]) -> None:
    """Fail with all the complaints, one to a line."""
    found = list(complaints)
    if found:
        pytest.fail("\n".join(found), pytrace=False)
