"""Fingerprints a reducer: its code and the values that the code uses.

A saved replay result is reused only by the same reducer. If the reducer cannot be fingerprinted (it uses a lock, a
connection or an agent), nothing is saved or reused: slow is better than wrong.
"""

from __future__ import annotations

import dis
import re
from collections.abc import Callable, Iterator
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, TypeAlias

from .. import codec
from ..errors import NotStorable, ValueTooLarge

_DEPTH_MAX = 30
_THINGS_MAX = 5_000
"""Limits of nesting and of the total number of values: enough for a config, not for half of the program."""

_MADE_BY_CLASS = 1 << 9
"""The flag of classes defined in Python, as opposed to builtins and extension types."""

Near: TypeAlias = dict[str, Any] | None
"""The module whose functions are examined with their globals; None examines all."""
_NOWHERE: Near = {}


class Untold(Exception):
    """The reducer uses something that can change without looking different."""


def parts_of(reducer: Any) -> list[bytes] | None:
    """Return bytes that identify a reducer; None if that is not possible."""
    telling = _Telling()
    try:
        telling.tell(reducer, None)
    except Untold:
        return None
    return telling.parts


class _Telling:
    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self._seen: dict[int, Any] = {}
        """What was visited, by id. The reference keeps the id from being reused."""
        self._depth = 0

    def tell(self, it: Any, near: Near) -> None:
        """Add a function with what it uses, or a value."""
        self._depth += 1
        if self._depth > _DEPTH_MAX or len(self._seen) > _THINGS_MAX:
            raise Untold
        tells = next((tell for kind, tell in _TELLS if isinstance(it, kind)), _Telling._value)
        tells(self, it, near)
        self._depth -= 1

    def _is_new(self, it: Any) -> bool:
        new = id(it) not in self._seen
        self._seen[id(it)] = it
        return new

    def _partial(self, it: partial[Any], near: Near) -> None:
        self._value((it.args, it.keywords), near)
        self.tell(it.func, near)

    def _method(self, it: MethodType, near: Near) -> None:
        self.tell(it.__func__, near)
        self.tell(it.__self__, near)

    def _function(self, it: FunctionType, near: Near) -> None:
        if not self._is_new(it):
            self.parts.append(it.__qualname__.encode())
            return
        self._value((it.__defaults__, it.__kwdefaults__), near)
        for cell in it.__closure__ or ():
            try:
                held = cell.cell_contents
            except ValueError:
                raise Untold from None  # an unset cell will get a value later
            self.tell(held, near)
        self.parts += _compiled(it.__code__)
        if near is None or it.__globals__ is near:
            self._globals(it)

    def _globals(self, it: FunctionType) -> None:
        """Add the globals that the code uses. Functions of other modules count by their code alone."""
        for name in dict.fromkeys(_taken(it.__code__)):
            if name in it.__globals__:
                self.parts.append(name.encode())
                self.tell(it.__globals__[name], it.__globals__)

    def _builtin(self, it: BuiltinFunctionType, near: Near) -> None:
        self.parts.append(it.__qualname__.encode())
        if it.__self__ is not None and not isinstance(it.__self__, ModuleType):
            self.tell(it.__self__, near)

    def _pattern(self, it: re.Pattern[Any], near: Near) -> None:
        self.parts.append(repr((it.pattern, it.flags)).encode())

    def _module(self, it: ModuleType, near: Near) -> None:
        self.parts.append(it.__name__.encode())

    def _class(self, it: type, near: Near) -> None:
        """Add a class by its name, its code and its plain values."""
        self.parts.append(it.__qualname__.encode())
        if not self._is_new(it):
            return
        for base in it.__mro__:
            if base.__flags__ & _MADE_BY_CLASS:
                for name, member in vars(base).items():
                    self._member(name, member, near)

    def _member(self, name: str, member: Any, near: Near) -> None:
        call = getattr(member, "__func__", None) or getattr(member, "fget", None) or member
        if isinstance(call, FunctionType):
            self.tell(call, near if near is not None else call.__globals__)
        elif not name.startswith("__"):
            try:
                self.parts += (name.encode(), codec.encode(member))
            except (NotStorable, ValueTooLarge):
                self.parts.append(name.encode())

    def _value(self, it: Any, near: Near) -> None:
        try:
            self.parts.append(codec.encode(it))
            return
        except (NotStorable, ValueTooLarge):
            pass  # not storable as a whole: use its parts
        if not self._is_new(it):
            self.parts.append(type(it).__qualname__.encode())
        elif type(it) in (list, tuple):
            for one in it:
                self.tell(one, near)
        elif type(it) is dict:
            for pair in it.items():
                self.tell(pair, near)
        else:
            made_by, *parts = _taken_apart(it)
            self.tell(made_by, _NOWHERE)
            for part in parts:
                self.tell(part, near)


_TELLS: tuple[tuple[type, Callable[[_Telling, Any, Near], None]], ...] = (
    (partial, _Telling._partial),
    (MethodType, _Telling._method),
    (FunctionType, _Telling._function),
    (BuiltinFunctionType, _Telling._builtin),
    (ModuleType, _Telling._module),
    (re.Pattern, _Telling._pattern),
    (type, _Telling._class),
)


def _taken_apart(it: Any) -> list[Any]:
    """Return the parts of an object as `copy` sees them: class, state and items. Nothing is stored."""
    try:
        parts = it.__reduce_ex__(2)
    except (TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise Untold from error  # a lock, a file, a connection
    if isinstance(parts, str):
        return [parts]
    return [list(part) if isinstance(part, Iterator) else part for part in parts]


def _compiled(code: CodeType) -> Iterator[bytes]:
    yield code.co_code
    yield repr((code.co_names, code.co_varnames)).encode()
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _compiled(constant)
        elif isinstance(constant, frozenset):  # its order differs between processes
            yield f"frozenset({{{', '.join(sorted(map(repr, constant)))}}})".encode()
        else:
            yield repr(constant).encode()


def _taken(code: CodeType) -> Iterator[str]:
    """Yield the names that code looks up in its module."""
    yield from (it.argval for it in dis.get_instructions(code) if it.opname in ("LOAD_GLOBAL", "LOAD_NAME"))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _taken(constant)
