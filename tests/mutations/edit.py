"""A change of one place of src/perdure, found by the definition that it is in and by the shape of its code.

Code is compared as a syntax tree, so formatting and comments do not matter. In `old`, `...` matches any expression or
statement and, at the end of a block, the rest of that block. In `new`, the first `...` stands for what the first one of
`old` has matched, and so on. An empty `new` removes a statement, operand, element or argument. In SQL, whitespace does
not matter.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


class BadMutant(Exception):
    """The mutant itself is wrong: it cannot be made, or shows nothing."""


@dataclass(frozen=True)
class Edit:
    """The code to change, which must be there exactly once, and the code that replaces it."""

    where: str
    """A module and a function, class or assigned name, as in `perdure.run.lifecycle:ClaimRun._take_lost_entries` and
    `perdure.values.limits:SEAL_EVENTS`; or an SQL file and a query: `perdure.store.sql.sqlite.queries:append_event`."""
    old: str
    """An expression or statements; in SQL any part of the query."""
    new: str

    def path(self, root: Path) -> Path:
        """The file to change."""
        stem = root / "src" / self.where.partition(":")[0].replace(".", "/")
        for path in (stem.with_suffix(".py"), stem / "__init__.py", stem.with_suffix(".sql")):
            if path.exists():
                return path
        raise BadMutant(f"{self.where}: no such module")

    def apply(self, path: Path) -> str:
        """The changed text of the file."""
        text = path.read_text("utf-8")
        if path.suffix == ".sql":
            start, end = self.find_in_sql(text)
            return text[:start] + self.new + text[end:]
        tree = ast.parse(text)
        run, matched = self.find(tree)
        parts = iter(matched)
        new = _Replace(lambda node: next(parts, node) if _is_dots(node) else node).visit(_patterns(self)[1]).body
        first = new if isinstance(run[0], ast.stmt) or not new else new[0]
        replaced = {id(node): None for node in run} | {id(run[0]): first or None}
        return ast.unparse(_Replace(lambda node: replaced.get(id(node), node)).visit(tree))

    def find(self, tree: ast.Module) -> tuple[list[Any], list[Any]]:
        """The nodes to replace, and what each `...` has matched."""
        anchors = _find_defined(tree, self.where.partition(":")[2])
        old, new = (part.body for part in _patterns(self))
        shapes = [old, [old[0].value]] if not new and isinstance(old[0], ast.Expr) else [old]
        tried = [(shape, run, list[Any]()) for run in _runs(anchors, len(old), bool(new)) for shape in shapes]
        found = [(run, matched) for shape, run, matched in tried if _match(shape, run, matched)]
        return self._require_one(found, "\n".join(map(ast.unparse, anchors)))

    def find_in_sql(self, text: str) -> tuple[int, int]:
        """Where the part of the query begins and ends."""
        name = self.where.partition(":")[2]
        query = re.search(rf"^-- name: {name}\(.*?(?=^-- name: |\Z)" if name else ".*", text, re.MULTILINE | re.DOTALL)
        start, end = query.span() if query else (0, 0)
        words = re.compile(r"\s+".join(map(re.escape, self.old.split())))
        return self._require_one([found.span() for found in words.finditer(text, start, end)], text[start:end])

    def _require_one(self, found: list[T], anchor: str) -> T:
        if len(found) != 1:
            raise BadMutant(
                f"{self.where} has this {len(found)} times, not once:\n{self.old}\n\n{anchor or 'It is gone.'}"
            )
        return found[0]


def _patterns(edit: Edit) -> tuple[ast.Module, ast.Module]:
    """Statements, or a bare expression each if both are one."""
    try:
        old, new = ast.parse(edit.old), ast.parse(edit.new)
    except SyntaxError as error:
        raise BadMutant(f"{edit.where}: neither an expression nor statements: {error.text}") from error
    if ast.dump(old) == ast.dump(new):
        raise BadMutant(f"{edit.where}: the edit changes nothing")
    match old.body, new.body:
        case [ast.Expr() as before], [ast.Expr() as after]:
            old.body, new.body = [before.value], [after.value]  # type: ignore[list-item]
    return old, new


def _find_defined(scope: ast.AST, name: str) -> list[ast.AST]:
    """What has that name: several for a property with a setter."""
    first, _, rest = name.partition(".")
    return (
        [one for node in _members(scope) if first in _names(node) for one in _find_defined(node, rest)]
        if first
        else [scope]
    )


def _members(scope: ast.AST) -> Iterator[ast.stmt]:
    """The statements of a scope, those under `if` and `try` too."""
    for node in ast.iter_child_nodes(scope):
        if isinstance(node, ast.stmt):
            yield node
        if isinstance(node, (ast.If, ast.Try, ast.With, ast.ExceptHandler)):
            yield from _members(node)


def _names(node: ast.stmt) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return {getattr(node, "name", ""), *(target.id for target in targets if isinstance(target, ast.Name))}


def _runs(anchors: list[ast.AST], length: int, singles: bool) -> Iterator[list[Any]]:
    """All that a pattern of so many nodes may match; without singles, only what can be removed."""
    yield from ([anchor] for anchor in anchors)
    for node in (node for anchor in anchors for node in ast.walk(anchor)):
        for value in vars(node).values():
            nodes = value if isinstance(value, list) else [value] if singles else []
            yield from (nodes[start : start + length] for start in range(len(nodes) - length + 1))


def _match(pattern: Any, found: Any, matched: list[Any]) -> bool:
    """Whether the code has the shape of the pattern; `matched` gets what each `...` stands for."""
    if _is_dots(pattern):
        matched.append(found)
        return True
    if type(pattern) is not type(found):
        return False
    if isinstance(pattern, list):
        if pattern and isinstance(pattern[-1], ast.Expr) and _is_dots(pattern[-1]):
            found = [*found[: len(pattern) - 1], found[len(pattern) - 1 :]]
        return len(pattern) == len(found) and all(_match(*pair, matched) for pair in zip(pattern, found, strict=True))
    if isinstance(pattern, ast.AST):
        fields = [name for name in pattern._fields if name != "ctx"]
        return all(_match(getattr(pattern, name, None), getattr(found, name, None), matched) for name in fields)
    return bool(pattern == found)


def _is_dots(node: Any) -> bool:
    node = node.value if isinstance(node, ast.Expr) else node
    return isinstance(node, ast.Constant) and node.value is ...


class _Replace(ast.NodeTransformer):
    """Replaces each node by what is chosen for it."""

    def __init__(self, choose: Callable[[ast.AST], Any]) -> None:
        self._choose = choose

    def visit(self, node: ast.AST) -> Any:
        chosen = self._choose(node)
        return self.generic_visit(node) if chosen is node else chosen
