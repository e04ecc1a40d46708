"""Analyses the source of a program: the check of an effect, what a step changes, where an argument comes from."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from perdure.testing.crashtest.carried_values import (  # fmt: skip
    OWNERS,
    PASSES,
    WRITTEN,
    CarriedVariable,
    FunctionNode,
    assignments,
    calls,
    find_carried,
    find_changed_copies,
    is_made,
    name_of,
    outer_changes,
)

TAKES_ALL = frozenset({"Exception", "BaseException", "PerdureError", "InDoubt"})


class VariableChange(msgspec.Struct, frozen=True):
    """A body that changes a variable of the enclosing code, which does not happen when the call is not run again."""

    function: str
    variable: str
    at: str


class ProgramSources:
    """The parsed files of a program."""

    def __init__(self, files: Iterable[str], source: Callable[[str], str]) -> None:
        self._trees = {name: tree for name in sorted(files) if (tree := _parse_source(source(name))) is not None}
        self.checks: dict[str, tuple[str, str]] = {}
        """The check of each effect, and where it is."""
        self.not_done: dict[str, str] = {}
        """Where each effect lists the errors that mean nothing happened."""
        self.changes: list[VariableChange] = []
        self._defined: dict[str, str] = {}
        self.carried: list[CarriedVariable] = []
        self.changed_copies: list[str] = []
        """Where a value from a state is changed in place and dropped."""
        self.openers: set[str] = set()
        """Functions that open a run."""
        for name, tree in self._trees.items():
            functions = [node for node in ast.walk(tree) if isinstance(node, FunctionNode)]
            lines = {function.name: function.lineno for function in functions}
            self.carried += find_carried(name, tree)
            self.changed_copies += [f"{name}:{line}" for line in find_changed_copies(tree)]
            self._defined |= {function.name: f"{name}:{function.lineno}" for function in functions}
            self.openers |= {"<module>"} if _opens_run(tree) else set()
            for function in functions:
                self._read(name, function, lines)
                self.openers |= {function.name} if _opens_run(function) or is_made(function, "task") else set()

    def _read(self, file: str, function: FunctionNode, lines: dict[str, int]) -> None:
        options = {word.arg: word.value for word in _options(function)}
        if (check := options.get("check")) is not None:
            called = ast.unparse(check)
            self.checks[function.name] = (called, f"{file}:{lines.get(called, function.lineno)}")
        if (errors := options.get("not_done")) is not None:
            self.not_done[function.name] = f"{file}:{errors.lineno}"
        if is_made(function, "step", "effect"):
            self.changes += [
                VariableChange(function.name, name, f"{file}:{line}") for name, line in outer_changes(function)
            ]

    def find_argument_origin(self, called: str, origins: Sequence[str]) -> str:
        """Return the first of some lines whose value reaches the arguments of a call; empty if none does."""
        for file, tree in self._trees.items():
            lines = {int(at.rpartition(":")[2]): at for at in origins if at.rpartition(":")[0] == file}
            makers = _makers(tree, lines, called)
            for scope in [tree, *(node for node in ast.walk(tree) if isinstance(node, FunctionNode))]:
                if found := _DataFlow(scope, called, lines, makers).find_call_origin():
                    return found
        return ""

    def find_line_origin(self, at: str, origins: Sequence[str]) -> str:
        """Return the first of some lines whose value decides what happens in another line; empty if none does."""
        file, _, number = at.rpartition(":")
        tree = self._trees.get(file)
        if tree is None:
            return ""
        lines = {int(one.rpartition(":")[2]): one for one in origins if one.rpartition(":")[0] == file}
        makers = _makers(tree, lines, "")
        scopes = [node for node in ast.walk(tree) if isinstance(node, FunctionNode)]
        around = [one for one in scopes if one.lineno <= int(number) <= (one.end_lineno or one.lineno)]
        flow = _DataFlow(around[-1] if around else tree, "", lines, makers)
        found = [flow.origin(node) for node in ast.walk(tree) if getattr(node, "lineno", 0) == int(number)]
        return next((one for one in found if one), "")

    def find_catch_all(self, called: str) -> str:
        """Return where an `except` catches everything that a call raises."""
        for file, tree in self._trees.items():
            for node in ast.walk(tree):
                if isinstance(node, ast.Try) and any(calls(part, called) for part in node.body):
                    for handler in node.handlers:
                        if handler.type is None or TAKES_ALL & {_last_part(one) for one in ast.walk(handler.type)}:
                            return f"{file}:{handler.lineno}"
        return ""

    def write_in(self, function: str) -> str:
        """Return where the body of an effect writes to the run or the agent."""
        for file, tree in self._trees.items():
            for node in ast.walk(tree):
                if isinstance(node, FunctionNode) and node.name == function:
                    lines = [
                        part.lineno for part in ast.walk(node)
                        if isinstance(part, ast.Attribute) and part.attr in WRITTEN and _last_part(part.value) in OWNERS
                    ]  # fmt: skip
                    return f"{file}:{min(lines)}" if lines else f"{file}:{node.lineno}"
        return ""

    def place_of(self, function: str) -> str:
        """Return the place of a function in brackets; empty if unknown."""
        return f" ({self._defined[function]})" if function in self._defined else ""

    def call_of(self, called: str) -> str:
        """Return where something is first called, as a function or a method."""
        for file, tree in self._trees.items():
            lines = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Call) and name_of(node) == called]
            if lines:
                return f"{file}:{min(lines)}"
        return ""


def _parse_source(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except SyntaxError:
        return None


def _options(function: FunctionNode) -> Iterator[ast.keyword]:
    for decorator in function.decorator_list:
        yield from decorator.keywords if isinstance(decorator, ast.Call) else ()


def _last_part(node: ast.AST) -> str:
    """Return the last part of a dotted name."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _opens_run(scope: ast.Module | FunctionNode) -> bool:
    """Return whether a run is opened in this very function."""
    functions = [node for node in ast.walk(scope) if isinstance(node, FunctionNode) and node is not scope]
    inner = {part for function in functions for part in ast.walk(function)}
    return any(
        isinstance(node, ast.With | ast.AsyncWith) and node not in inner and calls(item.context_expr, "run")
        for node in ast.walk(scope)
        for item in getattr(node, "items", ())
    )


def _makers(tree: ast.AST, lines: dict[int, str], called: str) -> dict[str, str]:
    """Return functions that contain one of the lines: their results come from there."""
    return {
        node.name: lines[line]
        for node in ast.walk(tree)
        if isinstance(node, FunctionNode)
        for line in sorted(lines)
        if node.lineno <= line <= (node.end_lineno or node.lineno) and node.name != called
    }


class _DataFlow:
    """Data flow within one function."""

    def __init__(self, scope: ast.AST, called: str, lines: dict[int, str], makers: dict[str, str]) -> None:
        self._called = called
        self._lines = lines
        self._makers = makers
        self._tainted: dict[str, str] = {}
        self._body = [node for node in ast.walk(scope) if isinstance(node, ast.stmt | ast.NamedExpr | ast.Call)]
        for _ in range(PASSES):
            for node in self._body:
                for target, value in assignments(node):
                    if found := self.origin(value):
                        self._tainted.setdefault(target, found)

    def origin(self, value: ast.AST) -> str:
        """Return the line that a value comes from."""
        for node in ast.walk(value):
            if isinstance(node, ast.Name) and node.id in self._tainted:
                return self._tainted[node.id]
            if isinstance(node, ast.Call) and name_of(node) in self._makers:
                return self._makers[name_of(node)]
            if isinstance(node, ast.Call) and node.lineno in self._lines and name_of(node) != self._called:
                return self._lines[node.lineno]
        return ""

    def find_call_origin(self) -> str:
        """Return the line that some argument of the call comes from."""
        for node in self._body:
            if isinstance(node, ast.Call) and name_of(node) == self._called:
                for value in (*node.args, *(word.value for word in node.keywords)):
                    if found := self.origin(value):
                        return found
        return ""
