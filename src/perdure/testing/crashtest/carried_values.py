"""Finds variables that carry a value between items of `run.each`.

A resumed run skips finished items and their changes.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from collections.abc import Set as AbstractSet

import msgspec

CHANGING_METHODS = frozenset(
    "append extend insert remove pop clear add discard update setdefault popitem sort reverse appendleft".split()
)
"""Methods of lists, sets and dicts that change them."""

PASSES = 4
"""How often data flow through a function is propagated: enough for any realistic chain of assignments."""

WRITTEN = frozenset("state messages event events checkpoint result artifacts workflows".split())
"""Attributes of a run or an agent that are durable."""

OWNERS = frozenset({"run", "agent"})

TELLS = frozenset({"print", "debug", "info", "warning", "error", "exception", "log"})
"""Calls that only report: their arguments decide nothing."""

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
LoopNode = ast.For | ast.AsyncFor


class CarriedVariable(msgspec.Struct, frozen=True):
    """A variable that is changed in the body of `run.each`, and what depends on its value."""

    variable: str
    at: str
    decides: bool
    """Whether an `if`, `while` or `for` depends on it."""
    kept: bool
    """Whether it is written to the run or elsewhere, or returned."""
    into: frozenset[str]
    """The functions that are called with it."""

    @property
    def name(self) -> str:
        """The name without `self`."""
        return self.variable.rpartition(".")[2]


def find_carried(file: str, tree: ast.Module) -> Iterator[CarriedVariable]:
    """Yield all such variables in one file of a program."""
    tree = _AttributeFlattener().visit(copy.deepcopy(tree))
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, FunctionNode)}
    for scope in (tree, *functions.values()):
        inner = {part for node in functions.values() if node is not scope for part in ast.walk(node)}
        for loop in ast.walk(scope):
            if isinstance(loop, LoopNode) and loop not in inner and calls(loop.iter, "each"):
                yield from _find_in_loop(file, tree, scope, loop, functions)


class _AttributeFlattener(ast.NodeTransformer):
    """Rewrites `self.total` to a plain variable, except in calls."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            return ast.copy_location(ast.Name(f"self.{node.attr}", node.ctx), node)
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        called = node.func
        self.generic_visit(node)
        return ast.copy_location(ast.Call(called, node.args, node.keywords), node) if _is_own(called) else node


def _is_own(called: ast.expr) -> bool:
    return isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id == "self"


def _find_in_loop(
    file: str, tree: ast.Module, scope: ast.Module | FunctionNode, loop: LoopNode, functions: dict[str, FunctionNode]
) -> Iterator[CarriedVariable]:
    declared = {name for node in ast.walk(scope) if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
    found = [(variable, line, scope) for variable, line in _changes(loop) if _outlives_item(variable, loop, scope)]
    for called in {name_of(node) for node in ast.walk(loop) if isinstance(node, ast.Call)} & functions.keys():
        if not is_made(functions[called], "step", "effect"):
            found += [(variable, line, tree) for variable, line in outer_changes(functions[called])]
    told: set[str] = set()
    for variable, line, around in sorted(found, key=lambda one: one[1]):
        if variable not in told:
            told.add(variable)
            everywhere = variable in declared or "." in variable
            made = _follow_flow(variable, f"{file}:{line}", tree if everywhere else around)
            if made.decides or made.kept or made.into:
                yield made


def _changes(loop: LoopNode) -> Iterator[tuple[str, int]]:
    """Yield variables that are set or changed in the body of a loop, with their lines."""
    for statement in loop.body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id, node.lineno
            elif (value := find_changed_variable(node)) is not None and value.id not in OWNERS:
                yield value.id, value.lineno


def _outlives_item(variable: str, loop: LoopNode, scope: ast.AST) -> bool:
    """Return whether a later item or the code after the loop sees the value, and nothing restores it after a crash."""
    if any(
        name == variable and _is_durable_value(value) for node in ast.walk(scope) for name, value in assignments(node)
    ):
        return False
    end = loop.end_lineno or loop.lineno
    after = [is_read for name, is_read in _iterate_uses(scope) if name.id == variable and name.lineno > end]
    inside = [
        is_read for part in (loop.target, *loop.body) for name, is_read in _iterate_uses(part) if name.id == variable
    ]
    return any(after[:1]) or any(inside[:1])


def _iterate_uses(node: ast.AST) -> Iterator[tuple[ast.Name, bool]]:
    """Yield names in execution order, each with whether it is read. Functions are skipped."""
    if isinstance(node, ast.Name):
        yield node, isinstance(node.ctx, ast.Load)
        return
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        yield node.target, True
    for part in sorted(ast.iter_child_nodes(node), key=lambda part: _turn(node, part)):
        if not isinstance(part, FunctionNode):
            yield from _iterate_uses(part)


def _turn(node: ast.AST, part: ast.AST) -> int:
    """Order evaluation: a value comes before its target, and the iterable of a comprehension before its result."""
    if isinstance(part, ast.comprehension):
        return 0
    value = node.iter if isinstance(node, LoopNode | ast.comprehension) else getattr(node, "value", None)
    return 1 if part is value else 2


def _is_durable_value(value: ast.AST) -> bool:
    """Return whether a value comes from durable data of the run or the agent."""
    return any(isinstance(node, ast.Attribute) and node.attr in WRITTEN for node in ast.walk(value))


def _follow_flow(variable: str, at: str, scope: ast.AST) -> CarriedVariable:
    """Find what depends on a variable, directly or through others."""
    tainted = {variable}
    nodes = list(ast.walk(scope))
    for _ in range(PASSES):
        tainted |= {name for node in nodes for name, value in assignments(node) if _uses_any(value, tainted)} - OWNERS
    decides = kept = False
    into: set[str] = set()
    for node in nodes:
        test = getattr(node, "test", None) or (node.iter if isinstance(node, LoopNode | ast.comprehension) else None)
        decides |= isinstance(test, ast.AST) and _uses_any(test, tainted)
        decides |= isinstance(node, ast.comprehension) and any(_uses_any(one, tainted) for one in node.ifs)
        kept |= _is_stored(node, variable) and _uses_any(getattr(node, "value", None), tainted)
        if isinstance(node, ast.Call) and find_changed_variable(node) is None and name_of(node) not in TELLS:
            given = [*node.args, *(word.value for word in node.keywords)]
            into |= {name_of(node)} if any(_uses_any(one, tainted) for one in given) else set()
    return CarriedVariable(variable, at, decides, kept, frozenset(into))


def _is_stored(node: ast.AST, variable: str) -> bool:
    """Return whether a value is stored where others can find it, not only in the variable itself."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    places = [one for one in targets if isinstance(one, ast.Attribute | ast.Subscript)]
    return isinstance(node, ast.Return) or any(not _uses_any(one.value, {variable}) for one in places)


def _uses_any(value: ast.AST | None, names: AbstractSet[str]) -> bool:
    return value is not None and any(isinstance(node, ast.Name) and node.id in names for node in ast.walk(value))


def is_made(function: FunctionNode, *makers: str) -> bool:
    """Return whether one of these methods of an agent decorates the function."""
    names = [one.func if isinstance(one, ast.Call) else one for one in function.decorator_list]
    return any(isinstance(name, ast.Attribute) and name.attr in makers for name in names)


def outer_changes(function: FunctionNode) -> Iterator[tuple[str, int]]:
    """Yield variables of the enclosing code that a body sets or changes, with their lines."""
    nodes = list(ast.walk(function))
    declared = {name for node in nodes if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
    stored = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    declared |= {name for name in stored if "." in name}
    arguments = function.args
    own = {one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)} | (stored - declared)
    for node in nodes:
        value = find_changed_variable(node)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in declared:
            yield node.id, node.lineno
        elif value is not None and value.id not in own:
            yield value.id, value.lineno


def find_changed_variable(node: ast.AST) -> ast.Name | None:
    """Return the variable whose value is changed here. `run.result = ...` is durable and does not count."""
    value: ast.expr | None = None
    if isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store):
        value = node.value if getattr(node, "attr", "") != "result" else None
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGING_METHODS:
        value = node.func.value
    return value if isinstance(value, ast.Name) else None


def find_changed_copies(tree: ast.Module) -> list[int]:
    """Return lines such as `run.state["names"].append(name)`, which change a copy and drop it."""
    found: set[int] = set()
    for node in ast.walk(tree):
        value: ast.expr | None = None
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            value = node.value
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            called = node.value.func
            value = called.value if isinstance(called, ast.Attribute) and called.attr in CHANGING_METHODS else None
        if value is not None and _is_copy(value):
            found.add(value.lineno)
    return sorted(found)


def _is_copy(value: ast.expr) -> bool:
    """Return whether an expression is `run.state[...]`, or a `get` on a state."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "get":
        state = value.func.value
    else:
        state = value.value if isinstance(value, ast.Subscript) else value
    owner = state.value if isinstance(state, ast.Attribute) and state.attr == "state" and state is not value else None
    return isinstance(owner, ast.Name) and owner.id in OWNERS


def name_of(call: ast.Call) -> str:
    """Return the name of what is called, as a function or a method."""
    function = call.func
    if isinstance(function, ast.Call):
        return name_of(function)  # book.options(id="leg-1")(...)
    if isinstance(function, ast.Attribute):
        inner = function.value
        return inner.id if function.attr == "options" and isinstance(inner, ast.Name) else function.attr
    return function.id if isinstance(function, ast.Name) else ""


def calls(node: ast.AST, called: str) -> bool:
    return any(isinstance(part, ast.Call) and name_of(part) == called for part in ast.walk(node))


def assignments(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield the names that get a value, and the value."""
    targets: list[ast.expr] = []
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
