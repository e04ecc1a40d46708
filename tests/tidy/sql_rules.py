"""Rules about SQL: static, named, explained, the same in both dialects, with every value bound."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tests.tidy.source import Source

RUNNERS = {"execute", "executemany", "executescript", "exec", "query", "prepare"}
HEADER = re.compile(r"^-- name: (\w+)\(([\w, ]*)\)$")
PARAMETER = re.compile(r"(?<![:\w]):(\w+)")
COMMENT_OR_STRING = re.compile(r"--[^\n]*|'(?:[^']|'')*'")
LOOKS_LIKE_SQL = re.compile(
    r"^\s*(SELECT\s|INSERT\s+(OR\s+\w+\s+)?INTO\s|UPDATE\s+\w+\s+SET\s|DELETE\s+FROM\s|CREATE\s+(\w+\s+)*TABLE\s"
    r"|ALTER\s+TABLE\s|DROP\s+TABLE\s|PRAGMA\s|SAVEPOINT\s|ROLLBACK\s+TO\s|RELEASE\s|ATTACH\s|VACUUM\s|WITH\s+\w+\s+AS\b)"
)


@dataclass(frozen=True)
class Statement:
    """A named statement of a .sql file."""

    name: str
    place: str
    parameters: tuple[str, ...]
    reason: str
    body: str


def find_built_sql(source: Source) -> Iterator[str]:
    """SQL that is put together at run time, where a value could become syntax."""
    reported = set()
    for _, function in [("", source.tree), *source.functions]:
        built = _find_built_names(function)
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and _runs_sql(node):
                argument = node.args[0]
                if _is_built(argument) or (isinstance(argument, ast.Name) and argument.id in built):
                    reported.add((node.lineno, ast.unparse(argument)))
            elif isinstance(node, ast.expr) and _is_built(node) and LOOKS_LIKE_SQL.match(_find_first_text(node)):
                reported.add((node.lineno, ast.unparse(node)))
    for line, text in sorted(reported):
        place = f"{source.path}:{line}"
        yield f"{place}: SQL is built at run time: {text[:60]}; name it in a .sql file and bind its values"


def _runs_sql(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in RUNNERS and bool(call.args)


def _find_built_names(scope: ast.AST) -> set[str]:
    assigned = [node for node in ast.walk(scope) if isinstance(node, ast.Assign | ast.AugAssign)]
    names = set()
    for node in assigned:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if _is_built(node.value) or (isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add)):
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def _is_built(node: ast.expr) -> bool:
    if isinstance(node, ast.JoinedStr):
        return any(isinstance(part, ast.FormattedValue) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod | ast.Add):
        # Two literals in a row are one literal; a number added to a number is no text.
        literal = isinstance(node.left, ast.Constant) and isinstance(node.right, ast.Constant)
        return not literal and bool(_find_first_text(node))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in {"format", "format_map", "join"} and bool(_find_first_text(node.func.value))
    return False


def _find_first_text(node: ast.expr) -> str:
    """The leftmost literal text of an expression."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return _find_first_text(node.values[0]) if node.values else ""
    if isinstance(node, ast.BinOp):
        return _find_first_text(node.left) or _find_first_text(node.right)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return _find_first_text(node.func.value)
    return ""


def statements(path: str, text: str) -> Iterator[Statement]:
    """The named statements of a .sql file. The line after the header is the reason."""
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("-- name:")]
    for start, end in pairwise([*starts, len(lines)]):
        header = HEADER.match(lines[start])
        reason = lines[start + 1] if start + 1 < end else ""
        yield Statement(
            name=header[1] if header else "",
            place=f"{path}:{start + 1}",
            parameters=tuple(p.strip() for p in header[2].split(",") if p.strip()) if header else (),
            reason=reason.removeprefix("-- ") if reason.startswith("-- ") else "",
            body="\n".join(lines[start + 1 : end]),
        )


def badly_named(found: list[Statement]) -> Iterator[str]:
    """Statements without a proper header or reason, named twice, or whose header and text disagree."""
    seen: set[str] = set()
    for statement in found:
        if not statement.name:
            yield f"{statement.place}: a header is `-- name: put_meta(key, value)`"
            continue
        if statement.name in seen:
            yield f"{statement.place}: {statement.name} is defined twice"
        seen.add(statement.name)
        if not statement.reason:
            yield f"{statement.place}: {statement.name}: the next line says why it exists"
        text = COMMENT_OR_STRING.sub("", statement.body)
        if not text.strip() and (statement.name.startswith("lock_") or statement.reason.startswith("Nothing to do:")):
            continue  # a file's writer has its lock already; a server's foreign keys remove rows themselves
        used = set(PARAMETER.findall(text))
        for name in sorted(used.symmetric_difference(statement.parameters)):
            yield f"{statement.place}: {statement.name}: `{name}` is only in the header or only in the text"


def unlike(dialects: Mapping[str, list[Statement]]) -> Iterator[str]:
    """Names that one dialect defines and another does not, or with other parameters."""
    everything = {s.name for found in dialects.values() for s in found}
    for name in sorted(everything):
        headers = {d: [s.parameters for s in found if s.name == name] for d, found in dialects.items()}
        for dialect, found in headers.items():
            if not found:
                yield f"{dialect}: {name} is not defined"
        given = {parameters[0] for parameters in headers.values() if parameters}
        if len(given) > 1:
            yield f"{name}: the dialects differ in its parameters: {sorted(given)}"


def statements_of(folder: Path) -> list[Statement]:
    """Every named statement of one dialect; schema and migrations have none."""
    return [s for path in sorted(folder.rglob("*.sql")) for s in statements(str(path), path.read_text("utf-8"))]
