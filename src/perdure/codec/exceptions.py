"""Exceptions as values: type, arguments, text, attributes and notes.

Builtin exceptions, those of Perdure and registered ones come back as themselves, every other as `StepFailed`,
which tells the name of its type. Rebuilding calls no `__init__` of a class of yours: an empty exception gets
its `args` and attributes. Cause, context and traceback stay behind.
"""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Callable, Iterator
from typing import Any, Final, cast

from .. import errors
from ..errors import CorruptValue, NotStorable, StepFailed
from .refusals import type_name

CLOSED: Final = 0
"""The version of exceptions in the closed list."""

TOLD: Final = -1
"""The version of exceptions that cannot be rebuilt here: they always come back as StepFailed."""

PART_BYTES_MAX: Final = 1024 * 1024
"""One argument or attribute; beyond it, its repr is stored: no exception is too large to record."""

BYTES_MAX: Final = 8 * PART_BYTES_MAX
"""All arguments and attributes together; beyond it, one repr stands for them."""

_TEXT_CHARACTERS_MAX: Final = 65_536
_REPR_CHARACTERS_MAX: Final = 1000

_OWN_ATTRIBUTES: Final = "_perdure_"
"""Attributes that begin so are notes of this process on an exception, and no part of it."""

# Written out, because what a newer Python adds must not change what stored bytes mean. Subclasses of
# Exception only: KeyboardInterrupt and its kin are no outcome of a step.
_BUILTIN: Final[tuple[type[Exception], ...]] = (
    Exception, ArithmeticError, AssertionError, AttributeError, BlockingIOError, BrokenPipeError,
    BufferError, BytesWarning, ChildProcessError, ConnectionAbortedError, ConnectionError,
    ConnectionRefusedError, ConnectionResetError, DeprecationWarning, EOFError, EncodingWarning,
    ExceptionGroup, FileExistsError, FileNotFoundError, FloatingPointError, FutureWarning, ImportError,
    ImportWarning, IndentationError, IndexError, InterruptedError, IsADirectoryError, KeyError,
    LookupError, MemoryError, ModuleNotFoundError, NameError, NotADirectoryError, NotImplementedError,
    OSError, OverflowError, PendingDeprecationWarning, PermissionError, ProcessLookupError,
    RecursionError, ReferenceError, ResourceWarning, RuntimeError, RuntimeWarning, StopAsyncIteration,
    StopIteration, SyntaxError, SyntaxWarning, SystemError, TabError, TimeoutError, TypeError,
    UnboundLocalError, UnicodeDecodeError, UnicodeEncodeError, UnicodeError, UnicodeTranslateError,
    UnicodeWarning, UserWarning, ValueError, Warning, ZeroDivisionError,
)  # fmt: skip

_UNICODE: Final = (UnicodeDecodeError, UnicodeEncodeError, UnicodeTranslateError)

_ATTRIBUTES: Final[dict[type[Exception], tuple[str, ...]]] = {
    OSError: ("errno", "strerror", "filename", "filename2", "characters_written"),
    ImportError: ("msg", "name", "path"),
    NameError: ("name",),
    AttributeError: ("name",),
    StopIteration: ("value",),
    SyntaxError: ("msg", "filename", "lineno", "offset", "text", "end_lineno", "end_offset"),
}
"""What builtin exceptions keep outside of `args` and `__dict__`."""


def _ours() -> Iterator[type[Exception]]:
    for kind in vars(errors).values():
        if inspect.isclass(kind) and issubclass(kind, Exception) and kind.__module__ == errors.__name__:
            yield kind


CLOSED_NAMES: Final[dict[type, str]] = {kind: kind.__name__ for kind in _BUILTIN} | {
    kind: f"perdure.{kind.__name__}" for kind in _ours()
}
CLOSED_TYPES: Final = {name: kind for kind, name in CLOSED_NAMES.items()}


def place_of(kind: type) -> str:
    """The name under which an exception is stored that has got no other."""
    return f"{kind.__module__}.{kind.__qualname__}"


def text_of(error: BaseException) -> str:
    """The message; an exception that cannot tell it is stored all the same."""
    return _told(lambda: str(error), error)[:_TEXT_CHARACTERS_MAX]


def attributes_of(error: BaseException) -> dict[str, Any]:
    """What the exception carries besides its arguments; notes are among it."""
    found = {name: _read(member, error) for name, member in _members(type(error)).items()}
    own = {k: v for k, v in vars(error).items() if type(k) is str and not k.startswith(_OWN_ATTRIBUTES)}
    return {name: value for name, value in found.items() if value is not None} | own


def _members(kind: type) -> dict[str, Any]:
    """The members of the builtin itself: a property of the same name in a class of yours is none of them."""
    return {
        name: vars(builtin)[name]
        for builtin, names in _ATTRIBUTES.items()
        if issubclass(kind, builtin)
        for name in names
    }


def _read(member: Any, error: BaseException) -> Any:
    try:
        return member.__get__(error)
    except AttributeError:
        return None


def shown(value: Any) -> str:
    """The repr that stands for an argument which cannot be stored."""
    return _told(lambda: _SHORT.repr(value), value)


def _short() -> reprlib.Repr:
    short = reprlib.Repr()
    short.maxstring = short.maxother = short.maxlong = _REPR_CHARACTERS_MAX
    short.maxlist = short.maxtuple = short.maxset = short.maxfrozenset = short.maxdict = 20
    return short


_SHORT: Final = _short()


def _told(tell: Callable[[], str], value: Any) -> str:
    try:
        return str.__str__(tell())
    # The user's __str__ and __repr__ may raise anything, and the exception must be recorded all the same.
    except Exception:
        return f"<{type_name(type(value))}>"


def needs_its_arguments(error: BaseException) -> bool:
    """Whether the exception cannot be rebuilt with a repr for an argument."""
    return isinstance(error, ExceptionGroup)


def can_return(error: BaseException) -> bool:
    """Whether `rebuild` will take this exception, with the arguments that it has."""
    if isinstance(error, _UNICODE):
        return _is_sound(type(error), error.args)
    return type(error) in CLOSED_NAMES or (isinstance(error, Exception) and rebuilds(type(error)))


def rebuild(kind: type[Exception], args: tuple[Any, ...], attributes: dict[str, Any]) -> Exception:
    """An exception with these arguments and attributes, without a call of its `__init__`."""
    base: Any = _builtin_base(kind)
    made: Exception = base.__new__(kind, *(args if issubclass(base, ExceptionGroup) else ()))
    if base in _UNICODE:
        if not _is_sound(base, args):
            raise CorruptValue(f"the stored arguments of {kind.__name__} are none that it takes")
        base.__init__(made, *args)
    made.args = args
    members = _members(kind)
    for name, value in attributes.items():
        if name in members:
            members[name].__set__(made, value)
        else:
            made.__dict__[name] = value
    return made


def _builtin_base(kind: type[Exception]) -> type[Exception]:
    """The builtin whose `__new__` makes the object: the one that its layout comes from."""
    base: Any = kind
    while base not in _BUILTIN and base is not BaseException:
        base = base.__base__
    if base is BaseException:  # `RunWasCancelled`: an Exception by its second base, which adds nothing to the layout
        base = next(one for one in kind.__mro__ if one in _BUILTIN)
    return cast("type[Exception]", base)


def _is_sound(kind: type[BaseException], args: tuple[Any, ...]) -> bool:
    """Whether a UnicodeError may have these arguments: its str() trusts a start below 0."""
    if issubclass(kind, UnicodeTranslateError):
        shapes: tuple[type, ...] = (str, int, int, str)
    else:
        shapes = (str, bytes if issubclass(kind, UnicodeDecodeError) else str, int, int, str)
    if tuple(map(type, args)) != shapes:
        return False
    start, end = args[-3], args[-2]
    return bool(0 <= start <= end < 2**31)


def rebuilds(kind: type[Exception]) -> bool:
    """Whether exceptions of this type can be rebuilt; some of extension modules cannot."""
    if issubclass(kind, (ExceptionGroup, *_UNICODE)):
        return True
    try:
        rebuild(kind, (), {})
    except TypeError:
        return False
    return True


def check_rebuilds(kind: type[Exception]) -> None:
    """Refuse to name an exception that could not come back."""
    if not rebuilds(kind):
        raise NotStorable(
            f"{type_name(kind)} cannot be rebuilt outside of its own module",
            hint="leave it out: it comes back as StepFailed, which tells its name",
        )


def failed(name: str, version: int, text: str, args: Any, attributes: dict[str, Any]) -> StepFailed:
    """What stands for an exception of a type that nobody has registered here, or that cannot come back."""
    hint = f"it was {name}; " + ("it cannot be rebuilt" if version == TOLD else StepFailed.hint)
    error = StepFailed(text, hint=hint, type_name=name, args=args)
    notes = attributes.get("__notes__")
    if type(notes) is list:
        error.__notes__ = notes
    return error
