"""The code that commits on PostgreSQL, with every call that blocks made a place where the scheduler may go elsewhere.

`store/postgres/commit.py` and `store/outage.py` are plain blocking code. Here their text is read once more. Each call
of something that waits, or that calls something that waits, becomes a `yield from`. Nothing else is changed: the tests
simulate the code that ships.
"""

from __future__ import annotations

import ast
import inspect
from types import ModuleType

from perdure.store import outage
from perdure.store.postgres import commit

WAITS = frozenset({"send_batch", "link", "pause", "sleep"})
"""A message and its answer, a connection out of the pool, time before a retry, time."""


def _called_name(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _find_waiting(tree: ast.Module) -> frozenset[str]:
    """The names of everything that waits, found by following the calls."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    known = WAITS
    while True:
        more = known | {
            function.name
            for function in functions
            if any(isinstance(node, ast.Call) and _called_name(node) in known for node in ast.walk(function))
        }
        if more == known:
            return known
        known = more


class _Unblocked(ast.NodeTransformer):
    def __init__(self, waiting: frozenset[str]) -> None:
        self._waiting = waiting

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        return ast.YieldFrom(node) if _called_name(node) in self._waiting else node


def unblock_module(module: ModuleType) -> ModuleType:
    """The same module with generators for whatever waits."""
    tree = ast.parse(inspect.getsource(module))
    tree = ast.fix_missing_locations(_Unblocked(_find_waiting(tree)).visit(tree))
    copy = ModuleType(module.__name__)
    copy.__dict__.update(__package__=module.__package__, __file__=module.__file__)
    exec(compile(tree, str(module.__file__), "exec"), copy.__dict__)
    return copy


outages = unblock_module(outage)
outages.__dict__.update(ConnectionCut=outage.ConnectionCut, ServerRefusal=outage.ServerRefusal)  # raised by others
commits = unblock_module(commit)
commits.__dict__.update(OutagePatience=outages.OutagePatience)
PostgresCommit = commits.PostgresCommit
