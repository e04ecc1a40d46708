"""Why a value was refused, where in it, and what to do about it."""

from __future__ import annotations

import re
from typing import Any, Final

from .. import limits
from ..errors import NotStorable, ValueProblem, ValueTooLarge

_KEY_CHARACTERS_MAX: Final = 40
_STEPS_SHOWN_MAX: Final = 24


class Refusal(Exception):
    """On its way up through the walk it collects the path; `encode` turns it into an error."""

    def __init__(self, reason: str, error: type[ValueProblem] = NotStorable) -> None:
        super().__init__(reason)
        self.reason = reason
        self.error = error
        self.trail: list[tuple[Any, str]] = []

    def at(self, container: Any, step: str) -> None:
        """Note one step of the path, from the inside out."""
        self.trail.append((container, step))

    def to_error(self, path: str) -> ValueProblem:
        """The error to raise, with the whole path."""
        return self.error(f"{path}{_shown(self.trail)}: {self.reason}")


class TooDeep(Refusal):
    """Nested over the limit: either really deep, or a circle."""

    def __init__(self) -> None:
        super().__init__(f"nested more than {limits.VALUE_DEPTH_MAX} deep", ValueTooLarge)

    def to_error(self, path: str) -> ValueProblem:
        """The circle, if a container occurs twice on the way down."""
        first: dict[int, int] = {}
        for depth, (container, _) in enumerate(reversed(self.trail)):
            seen = first.setdefault(id(container), depth)
            if seen != depth:
                down = list(reversed(self.trail))
                start, end = (path + _shown(down[:at][::-1]) for at in (seen, depth))
                return NotStorable(f"{end}: refers back to {start}; a circular reference cannot be stored")
        return super().to_error(path)


def key_step(key: Any) -> str:
    """One step of a path into a dict, as it would be written: `.name` or `['any key']`.

    >>> key_step("seat"), key_step("a b")
    ('.seat', "['a b']")
    """
    if type(key) is str:
        if key.isidentifier() and len(key) <= _KEY_CHARACTERS_MAX:
            return f".{key}"
        return f"[{_cut(key)!r}]"
    if type(key) in (int, bool, float, type(None)):
        return f"[{key!r}]" if type(key) is not int or key.bit_length() < 128 else "[<int>]"
    return f"[<{type_name(type(key))}>]"


def type_name(kind: type) -> str:
    """The name of a type for people, without `builtins`."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


_ADVICE: Final = {
    "builtins.function": "store the data, and call the function after",
    "builtins.builtin_function_or_method": "store the data, and call the function after",
    "builtins.method": "store the data, and call the method after",
    "builtins.generator": "make a list of it",
    "builtins.map": "make a list of it",
    "builtins.filter": "make a list of it",
    "builtins.zip": "make a list of it",
    "builtins.dict_keys": "make a list of it",
    "builtins.dict_values": "make a list of it",
    "builtins.dict_items": "make a list of it",
    "builtins.coroutine": "await it first",
    "builtins.async_generator": "make a list of it",
    "builtins.memoryview": "make bytes of it",
    "builtins.module": "store data, not code",
    "builtins.type": "store data, not code",
    "builtins.ellipsis": "use None",
    "collections.OrderedDict": "make a dict of it, which keeps its order too",
    "collections.defaultdict": "make a dict of it: its factory is code",
    "collections.Counter": "make a dict of it",
    "collections.deque": "make a list of it",
    "collections.ChainMap": "make a dict of it",
    "array.array": "make a list, bytes or a numpy array of it",
    "types.SimpleNamespace": "use vars(it), or a dataclass with @perdure.stored",
    "types.MappingProxyType": "make a dict of it",
    "builtins.mappingproxy": "make a dict of it",
}

_HANDLES: Final = frozenset(
    "_io _thread threading queue _queue socket _socket ssl _ssl select selectors asyncio _asyncio concurrent "
    "subprocess multiprocessing mmap tempfile sqlite3 apsw weakref _weakref contextvars _contextvars".split()
)
"""Modules whose objects are handles of this process: nothing of them could be brought back."""


def not_storable(kind: type) -> Refusal:
    """The refusal of a type, with the advice that fits it."""
    name = type_name(kind)
    advice = _ADVICE.get(f"{kind.__module__}.{kind.__qualname__}")
    if issubclass(kind, type):
        advice = "store data, not code"
    if advice is None and str(kind.__module__).partition(".")[0] in _HANDLES:
        advice = "it belongs to this process; store what is needed to open it again"
    if advice is None:
        advice = f'register it with @perdure.stored("{_suggested(kind)}")'
        if not _has_fields(kind):
            advice += ", with __perdure_store__ and __perdure_load__"
    return Refusal(f"{name} cannot be stored; {advice}")


def _has_fields(kind: type) -> bool:
    """Whether `@perdure.stored` alone is enough: see shapes.py for what each of them is."""
    marks = (
        "__dataclass_fields__",
        "__attrs_attrs__",
        "__pydantic_fields__",
        "__struct_fields__",
        "__members__",
        "_fields",
    )
    return any(hasattr(kind, mark) for mark in marks)


def _suggested(kind: type) -> str:
    """`FlightSeat` -> `flight-seat`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", kind.__name__).lower()


def _cut(text: str) -> str:
    return text if len(text) <= _KEY_CHARACTERS_MAX else text[: _KEY_CHARACTERS_MAX - 1] + "…"


def _shown(trail: list[tuple[Any, str]]) -> str:
    steps = [step for _, step in reversed(trail)]
    if len(steps) > _STEPS_SHOWN_MAX:
        steps = [*steps[:_STEPS_SHOWN_MAX], "…"]
    return "".join(steps)
