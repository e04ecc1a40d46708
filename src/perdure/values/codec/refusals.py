"""Errors for values that cannot be stored: the reason, the path to the part, and what to do."""

from __future__ import annotations

import re
from typing import Any, Final

from perdure.errors import NotStorable, ValueProblem, ValueTooLarge
from perdure.values import limits

_KEY_CHARACTERS_MAX: Final = 40
_STEPS_SHOWN_MAX: Final = 24


class Refusal(Exception):
    """Collects the path on its way up through the walk. `encode` turns it into an error."""

    def __init__(
        self,
        reason: str,
        error: type[ValueProblem] = NotStorable,
        *,
        hint: str = "",
        undeclared: type | None = None,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.error = error
        self.hint = hint
        self.undeclared = undeclared
        self.trail: list[tuple[Any, str]] = []

    def add_step(self, container: Any, step: str) -> None:
        """Record one step of the path, from the inside out."""
        self.trail.append((container, step))

    def to_error(self, path: str) -> ValueProblem:
        """Return the error to raise, with the whole path."""
        error = self.error(f"{path}{_format_trail(self.trail)}: {self.reason}", hint=self.hint)
        if isinstance(error, NotStorable):
            error.undeclared = self.undeclared
        return error


class TooDeep(Refusal):
    """Nested beyond the limit: either really deep, or circular."""

    def __init__(self) -> None:
        super().__init__(f"nested more than {limits.VALUE_DEPTH_MAX} deep", ValueTooLarge)

    def to_error(self, path: str) -> ValueProblem:
        """Return an error that names the circular reference, if a container occurs twice on the path."""
        first: dict[int, int] = {}
        for depth, (container, _) in enumerate(reversed(self.trail)):
            seen = first.setdefault(id(container), depth)
            if seen != depth:
                down = list(reversed(self.trail))
                start, end = (path + _format_trail(down[:at][::-1]) for at in (seen, depth))
                return NotStorable(f"{end}: refers back to {start}; a circular reference cannot be stored")
        return super().to_error(path)


def key_step(key: Any) -> str:
    """Return one step of a path into a dict: `.name` or `['any key']`.

    >>> key_step("seat"), key_step("a b")
    ('.seat', "['a b']")
    """
    if type(key) is str:
        if key.isidentifier() and len(key) <= _KEY_CHARACTERS_MAX:
            return f".{key}"
        return f"[{_truncate(key)!r}]"
    if type(key) in (int, bool, float, type(None)):
        return f"[{key!r}]" if type(key) is not int or key.bit_length() < 128 else "[<int>]"
    return f"[<{type_name(type(key))}>]"


def type_name(kind: type) -> str:
    """Return the display name of a type, without `builtins`."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


_SECRET: Final = "leave it out: stores are not encrypted. If that is acceptable, store value.get_secret_value()"
_ADVICE: Final = {
    "builtins.function": "store the data and call the function later",
    "builtins.builtin_function_or_method": "store the data and call the function later",
    "builtins.method": "store the data and call the method later",
    "builtins.generator": "convert it to a list",
    "builtins.map": "convert it to a list",
    "builtins.filter": "convert it to a list",
    "builtins.zip": "convert it to a list",
    "builtins.dict_keys": "convert it to a list",
    "builtins.dict_values": "convert it to a list",
    "builtins.dict_items": "convert it to a list",
    "builtins.coroutine": "await it first",
    "builtins.async_generator": "convert it to a list",
    "builtins.memoryview": "convert it to bytes",
    "builtins.module": "store data, not code",
    "builtins.type": "store data, not code",
    "builtins.ellipsis": "use None",
    "collections.ChainMap": "convert it to a dict",
    "array.array": "convert it to a list, bytes or a numpy array",
    "types.SimpleNamespace": "use vars(value), or a dataclass with @perdure.stored",
    "types.MappingProxyType": "convert it to a dict",
    "builtins.mappingproxy": "convert it to a dict",
    "re.Pattern": "store its text: value.pattern",
    "pydantic.types.SecretStr": _SECRET,
    "pydantic.types.SecretBytes": _SECRET,
}

_CLIENTS: Final = frozenset({"openai", "anthropic", "httpx", "requests", "aiohttp"})
_OF_CLIENTS: Final = (
    ("Stream", "collect it inside of the step and return the text or list(stream)"),
    ("Page", "store list(page), which reads all pages, or page.data"),
    ("APIResponse", "store response.parse()"),
    ("ResponseContent", "store response.content"),
    ("Response", "store response.json() or response.text"),
    ("", "make it outside of the step; store the data that it returns"),
)
"""Advice for objects of libraries that talk to services, by a word in the name of the class. The first one counts."""

_HANDLES: Final = frozenset(
    "_io _thread threading queue _queue socket _socket ssl _ssl select selectors asyncio _asyncio concurrent "
    "subprocess multiprocessing mmap tempfile sqlite3 apsw weakref _weakref contextvars _contextvars".split()
)
"""Modules whose objects are handles of this process and cannot be restored."""


def advise_client(kind: type) -> str | None:
    """Return what to store instead of a page, a stream, a raw response or a client of an SDK."""
    if str(kind.__module__).partition(".")[0] not in _CLIENTS:
        return None
    return next(advice for word, advice in _OF_CLIENTS if word in kind.__name__)


def refuse_type(kind: type) -> Refusal:
    """Return the refusal of a type, with matching advice."""
    name = type_name(kind)
    advice = _ADVICE.get(f"{kind.__module__}.{kind.__qualname__}", advise_client(kind))
    if issubclass(kind, type):
        advice = "store data, not code"
    if advice is None and str(kind.__module__).partition(".")[0] in _HANDLES:
        advice = "it belongs to this process; store what is needed to open it again"
    if advice is None:
        advice = f'register it with @perdure.stored("{_suggest_name(kind)}")'
        if not has_fields(kind):
            advice = f"make it a dataclass, store its data (vars(value)), or {advice}"
            advice += ", with __perdure_store__ and __perdure_load__"
    return Refusal(f"{name} cannot be stored", hint=advice)


def refuse_unregistered(kind: type, reason: str) -> Refusal:
    """Return the refusal of a data class that cannot be built without running its code."""
    return Refusal(
        f"{type_name(kind)} cannot be stored by itself: {reason}",
        hint=f'register it with @perdure.stored("{_suggest_name(kind)}")',
    )


def has_fields(kind: type) -> bool:
    """Return whether a class declares its fields. See shapes.py for the kinds."""
    marks = (
        "__dataclass_fields__",
        "__attrs_attrs__",
        "__pydantic_fields__",
        "__struct_fields__",
        "__members__",
        "_fields",
    )
    return not issubclass(kind, type) and any(hasattr(kind, mark) for mark in marks)


def _suggest_name(kind: type) -> str:
    """`FlightSeat` -> `flight-seat`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", kind.__name__).lower()


def _truncate(text: str) -> str:
    return text if len(text) <= _KEY_CHARACTERS_MAX else text[: _KEY_CHARACTERS_MAX - 1] + "…"


def _format_trail(trail: list[tuple[Any, str]]) -> str:
    steps = [step for _, step in reversed(trail)]
    if len(steps) > _STEPS_SHOWN_MAX:
        steps = [*steps[:_STEPS_SHOWN_MAX], "…"]
    return "".join(steps)
