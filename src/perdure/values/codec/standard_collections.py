"""The classes of `collections` that people keep their data in: deque, OrderedDict, Counter and defaultdict.

Each is stored as its name, one argument and its content, which is an ordinary list or dict. The factory of a
defaultdict is code: only the builtins below, which are stored by name, are accepted.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any, Final

from perdure.errors import CorruptValue
from perdure.values.codec.refusals import Refusal

FACTORIES: Final[dict[str, Callable[[], Any]]] = {
    "bool": bool,
    "dict": dict,
    "float": float,
    "int": int,
    "list": list,
    "set": set,
    "str": str,
    "tuple": tuple,
}

NAMES: Final[dict[type, str]] = {
    deque: "deque",
    OrderedDict: "OrderedDict",
    Counter: "Counter",
    defaultdict: "defaultdict",
}
"""The stored names. Permanent, like the tags."""


def argument_of(value: Any) -> int | str | None:
    """Return what a collection has besides its content: the length of a deque, the factory of a defaultdict."""
    if type(value) is deque:
        return value.maxlen
    if type(value) is not defaultdict or value.default_factory is None:
        return None
    for name, factory in FACTORIES.items():
        if value.default_factory is factory:
            return name
    raise Refusal(
        "collections.defaultdict cannot be stored with this factory, which is code",
        hint=f"use one of {', '.join(FACTORIES)}, or convert it to a dict",
    )


def rebuilt(name: Any, argument: Any, content: Any) -> Any:
    """Return the collection. Raises `CorruptValue` for parts that `argument_of` does not give."""
    if name == "deque" and type(content) is list and (argument is None or _is_length(argument, content)):
        return deque(content, argument)
    if type(content) is dict:
        if name == "OrderedDict" and argument is None:
            return OrderedDict(content)
        if name == "Counter" and argument is None:
            return Counter(content)
        if name == "defaultdict" and (argument is None or (type(argument) is str and argument in FACTORIES)):
            return defaultdict(None if argument is None else FACTORIES[argument], content)
    raise CorruptValue("a stored collection is not in the form that Perdure writes")


def _is_length(argument: Any, content: list[Any]) -> bool:
    return type(argument) is int and len(content) <= argument
