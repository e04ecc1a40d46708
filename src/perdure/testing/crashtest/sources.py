"""What the text of a program says: which check an effect has, what a step changes, where an argument comes from."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

CHANGING_METHODS = frozenset(
    "append extend insert remove pop clear add discard update setdefault popitem sort reverse appendleft".split()
)
"""Of lists, sets and dicts."""

PASSES = 4
"""Through a function, until what flows where has settled: more would need longer detours than anybody writes."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Change(msgspec.Struct, frozen=True):
    """A body changes a variable of the code around it, which a remembered call does not."""

    function: str
    variable: str
    at: str


class Sources:
    """The files of a program, parsed."""

    def __init__(self, files: Iterable[str], source: Callable[[str], str]) -> None:
        self._trees = {name: tree for name in sorted(files) if (tree := _parsed(source(name))) is not None}
        self.checks: dict[str, tuple[str, str]] = {}
        """By the name of an effect: its check, and where that is."""
        self.not_done: dict[str, str] = {}
        """By the name of an effect: where it says which errors mean that nothing has happened."""
        self.changes: list[Change] = []
        for name, tree in self._trees.items():
            functions = [node for node in ast.walk(tree) if isinstance(node, Function)]
            lines = {function.name: function.lineno for function in functions}
            for function in functions:
                self._read(name, function, lines)

    def _read(self, file: str, function: Function, lines: dict[str, int]) -> None:
        options = {word.arg: word.value for word in _options(function)}
        if (check := options.get("check")) is not None:
            called = ast.unparse(check)
            self.checks[function.name] = (called, f"{file}:{lines.get(called, function.lineno)}")
        if (errors := options.get("not_done")) is not None:
            self.not_done[function.name] = f"{file}:{errors.lineno}"
        if _is_durable(function):
            self.changes += [Change(function.name, name, f"{file}:{line}") for name, line in _outer_changes(function)]

    def flowing_into(self, called: str, origins: Sequence[str]) -> str:
        """The first of some lines whose value comes to the arguments of a call; empty, if none does."""
        for file, tree in self._trees.items():
            lines = {int(at.rpartition(":")[2]): at for at in origins if at.rpartition(":")[0] == file}
            makers = {
                node.name: lines[line]
                for node in ast.walk(tree)
                if isinstance(node, Function)
                for line in sorted(lines)
                if node.lineno <= line <= (node.end_lineno or node.lineno) and node.name != called
            }
            for scope in [tree, *(node for node in ast.walk(tree) if isinstance(node, Function))]:
                if found := _flow(scope, called, lines, makers):
                    return found
        return ""

    def call_of(self, called: str) -> str:
        """Where something is called first, by its name or as a method."""
        for file, tree in self._trees.items():
            lines = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Call) and _name(node) == called]
            if lines:
                return f"{file}:{min(lines)}"
        return ""


def _parsed(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except SyntaxError:
        return None


def _options(function: Function) -> Iterator[ast.keyword]:
    for decorator in function.decorator_list:
        yield from decorator.keywords if isinstance(decorator, ast.Call) else ()


def _is_durable(function: Function) -> bool:
    """Whether it is a step or an effect."""
    names = [one.func if isinstance(one, ast.Call) else one for one in function.decorator_list]
    return any(isinstance(name, ast.Attribute) and name.attr in ("step", "effect") for name in names)


def _outer_changes(function: Function) -> Iterator[tuple[str, int]]:
    """Variables of the code around that a body sets or changes, each with its line."""
    nodes = list(ast.walk(function))
    declared = {name for node in nodes if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
    stored = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    arguments = function.args
    own = {one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)} | (stored - declared)
    for node in nodes:
        changed = _changed(node)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in declared:
            yield node.id, node.lineno
        elif changed is not None and changed.id not in own:
            yield changed.id, changed.lineno


def _changed(node: ast.AST) -> ast.Name | None:
    """The variable whose value is changed here. `run.result = ...` is remembered, and no such thing."""
    value: ast.expr | None = None
    if isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store):
        value = node.value if getattr(node, "attr", "") != "result" else None
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGING_METHODS:
        value = node.func.value
    return value if isinstance(value, ast.Name) else None


def _name(call: ast.Call) -> str:
    function = call.func
    if isinstance(function, ast.Call):
        return _name(function)  # book.options(id="leg-1")(...)
    if isinstance(function, ast.Attribute):
        inner = function.value
        return inner.id if function.attr == "options" and isinstance(inner, ast.Name) else function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _flow(scope: ast.AST, called: str, lines: dict[int, str], makers: dict[str, str]) -> str:
    tainted: dict[str, str] = {}

    def origin(value: ast.AST) -> str:
        for node in ast.walk(value):
            if isinstance(node, ast.Name) and node.id in tainted:
                return tainted[node.id]
            if isinstance(node, ast.Call) and _name(node) in makers:
                return makers[_name(node)]
            if isinstance(node, ast.Call) and node.lineno in lines and _name(node) != called:
                return lines[node.lineno]
        return ""

    body = [node for node in ast.walk(scope) if isinstance(node, ast.stmt | ast.NamedExpr | ast.Call)]
    for _ in range(PASSES):
        for node in body:
            for target, value in _assignments(node):
                if found := origin(value):
                    tainted.setdefault(target, found)
    for node in body:
        if isinstance(node, ast.Call) and _name(node) == called:
            for value in (*node.args, *(word.value for word in node.keywords)):
                if found := origin(value):
                    return found
    return ""


def _assignments(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Names that get a value, and the value."""
    targets: Sequence[ast.AST] = ()
    value: ast.AST | None = None
    if isinstance(node, ast.Assign):
        targets, value = node.targets, node.value
    elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr):
        targets, value = [node.target], node.value
    elif isinstance(node, ast.For | ast.AsyncFor):
        targets, value = [node.target], node.iter
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGING_METHODS:
        targets, value = [node.func.value], ast.Tuple([*node.args, *(word.value for word in node.keywords)])
    if value is not None:
        for target in targets:
            for name in ast.walk(target):
                if isinstance(name, ast.Name):
                    yield name.id, value
