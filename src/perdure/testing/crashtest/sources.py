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

TAKES_ALL = frozenset({"Exception", "BaseException", "PerdureError", "InDoubt"})
WRITTEN = frozenset("state messages event events checkpoint result artifacts workflows".split())
WRITERS = frozenset({"run", "agent"})

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
        self.openers: set[str] = set()
        """Functions in which a run is opened."""
        for name, tree in self._trees.items():
            functions = [node for node in ast.walk(tree) if isinstance(node, Function)]
            lines = {function.name: function.lineno for function in functions}
            self.openers |= {"<module>"} if _opens(tree) else set()
            for function in functions:
                self._read(name, function, lines)
                self.openers |= {function.name} if _opens(function) or _is_made(function, "task") else set()

    def _read(self, file: str, function: Function, lines: dict[str, int]) -> None:
        options = {word.arg: word.value for word in _options(function)}
        if (check := options.get("check")) is not None:
            called = ast.unparse(check)
            self.checks[function.name] = (called, f"{file}:{lines.get(called, function.lineno)}")
        if (errors := options.get("not_done")) is not None:
            self.not_done[function.name] = f"{file}:{errors.lineno}"
        if _is_made(function, "step", "effect"):
            self.changes += [Change(function.name, name, f"{file}:{line}") for name, line in _outer_changes(function)]

    def flowing_into(self, called: str, origins: Sequence[str]) -> str:
        """The first of some lines whose value comes to the arguments of a call; empty, if none does."""
        for file, tree in self._trees.items():
            lines = {int(at.rpartition(":")[2]): at for at in origins if at.rpartition(":")[0] == file}
            makers = _makers(tree, lines, called)
            for scope in [tree, *(node for node in ast.walk(tree) if isinstance(node, Function))]:
                if found := _Flow(scope, called, lines, makers).into_call():
                    return found
        return ""

    def flowing_to(self, at: str, origins: Sequence[str]) -> str:
        """The first of some lines whose value decides what happens in another one; empty, if none does."""
        file, _, number = at.rpartition(":")
        tree = self._trees.get(file)
        if tree is None:
            return ""
        lines = {int(one.rpartition(":")[2]): one for one in origins if one.rpartition(":")[0] == file}
        makers = _makers(tree, lines, "")
        scopes = [node for node in ast.walk(tree) if isinstance(node, Function)]
        around = [one for one in scopes if one.lineno <= int(number) <= (one.end_lineno or one.lineno)]
        flow = _Flow(around[-1] if around else tree, "", lines, makers)
        found = [flow.origin(node) for node in ast.walk(tree) if getattr(node, "lineno", 0) == int(number)]
        return next((one for one in found if one), "")

    def passes_over(self, called: str) -> str:
        """Where an `except` takes everything that a call raises."""
        for file, tree in self._trees.items():
            for node in ast.walk(tree):
                if isinstance(node, ast.Try) and any(_calls(part, called) for part in node.body):
                    for handler in node.handlers:
                        if handler.type is None or TAKES_ALL & {_last(one) for one in ast.walk(handler.type)}:
                            return f"{file}:{handler.lineno}"
        return ""

    def write_in(self, function: str) -> str:
        """Where the body of an effect writes to the run or the agent."""
        for file, tree in self._trees.items():
            for node in ast.walk(tree):
                if isinstance(node, Function) and node.name == function:
                    lines = [
                        part.lineno for part in ast.walk(node)
                        if isinstance(part, ast.Attribute) and part.attr in WRITTEN and _last(part.value) in WRITERS
                    ]  # fmt: skip
                    return f"{file}:{min(lines)}" if lines else f"{file}:{node.lineno}"
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


def _is_made(function: Function, *makers: str) -> bool:
    """Whether one of these methods of an agent decorates it."""
    names = [one.func if isinstance(one, ast.Call) else one for one in function.decorator_list]
    return any(isinstance(name, ast.Attribute) and name.attr in makers for name in names)


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


def _last(node: ast.AST) -> str:
    """The last part of a dotted name."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _calls(node: ast.AST, called: str) -> bool:
    return any(isinstance(part, ast.Call) and _name(part) == called for part in ast.walk(node))


def _opens(scope: ast.Module | Function) -> bool:
    """Whether a run is opened in this very function."""
    functions = [node for node in ast.walk(scope) if isinstance(node, Function) and node is not scope]
    inner = {part for function in functions for part in ast.walk(function)}
    return any(
        isinstance(node, ast.With | ast.AsyncWith) and node not in inner and _calls(item.context_expr, "run")
        for node in ast.walk(scope)
        for item in getattr(node, "items", ())
    )


def _makers(tree: ast.AST, lines: dict[int, str], called: str) -> dict[str, str]:
    """Functions that have one of the lines in them: what they return comes from there."""
    return {
        node.name: lines[line]
        for node in ast.walk(tree)
        if isinstance(node, Function)
        for line in sorted(lines)
        if node.lineno <= line <= (node.end_lineno or node.lineno) and node.name != called
    }


class _Flow:
    """Where values come from, in one function."""

    def __init__(self, scope: ast.AST, called: str, lines: dict[int, str], makers: dict[str, str]) -> None:
        self._called = called
        self._lines = lines
        self._makers = makers
        self._tainted: dict[str, str] = {}
        self._body = [node for node in ast.walk(scope) if isinstance(node, ast.stmt | ast.NamedExpr | ast.Call)]
        for _ in range(PASSES):
            for node in self._body:
                for target, value in _assignments(node):
                    if found := self.origin(value):
                        self._tainted.setdefault(target, found)

    def origin(self, value: ast.AST) -> str:
        """The line that a value comes from."""
        for node in ast.walk(value):
            if isinstance(node, ast.Name) and node.id in self._tainted:
                return self._tainted[node.id]
            if isinstance(node, ast.Call) and _name(node) in self._makers:
                return self._makers[_name(node)]
            if isinstance(node, ast.Call) and node.lineno in self._lines and _name(node) != self._called:
                return self._lines[node.lineno]
        return ""

    def into_call(self) -> str:
        """The line that some argument of the call comes from."""
        for node in self._body:
            if isinstance(node, ast.Call) and _name(node) == self._called:
                for value in (*node.args, *(word.value for word in node.keywords)):
                    if found := self.origin(value):
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
