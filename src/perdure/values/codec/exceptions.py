"""Exceptions as values: type, arguments, text, attributes and notes.

Builtin exceptions, those of Perdure, registered ones and plain ones of imported modules come back as themselves; any
other as `StepFailed`, which names its type. Rebuilding calls no `__init__` of a user class: an empty exception gets its
`args` and attributes. Cause, context and traceback are not stored.
"""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Callable, Iterator
from typing import Any, Final, cast

from perdure import errors
from perdure.errors import CorruptValue, NotStorable, StepFailed
from perdure.values.codec.pydantic_values import is_validation_error, rebuild_validation_error, validation_parts
from perdure.values.codec.refusals import type_name

CLOSED: Final = 0
"""The version of exceptions in the closed list."""

TOLD: Final = -1
"""The version of exceptions that cannot be rebuilt: they always come back as StepFailed."""

PART_BYTES_MAX: Final = 1024 * 1024
"""Limit of one argument or attribute. A larger one is stored as its repr: no exception is too large to record."""

BYTES_MAX: Final = 8 * PART_BYTES_MAX
"""Limit of all arguments and attributes together. Beyond it, one repr replaces them."""

_TEXT_CHARACTERS_MAX: Final = 65_536
_REPR_CHARACTERS_MAX: Final = 1000

_OWN_ATTRIBUTES: Final = "_perdure_"
"""The prefix of attributes that are notes of this process and not part of the exception."""

# Listed explicitly, because additions in a newer Python must not change the meaning of stored bytes. Only subclasses of
# Exception: KeyboardInterrupt and the like are not outcomes of a step.
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

_set_args: Final[Any] = vars(BaseException)["args"].__set__
_UNICODE: Final = (UnicodeDecodeError, UnicodeEncodeError, UnicodeTranslateError)

_ATTRIBUTES: Final[dict[type[Exception], tuple[str, ...]]] = {
    OSError: ("errno", "strerror", "filename", "filename2", "characters_written"),
    ImportError: ("msg", "name", "path"),
    NameError: ("name",),
    AttributeError: ("name",),
    StopIteration: ("value",),
    SyntaxError: ("msg", "filename", "lineno", "offset", "text", "end_lineno", "end_offset"),
}
"""Attributes that builtin exceptions keep outside of `args` and `__dict__`."""


def _ours() -> Iterator[type[Exception]]:
    for kind in vars(errors).values():
        if inspect.isclass(kind) and issubclass(kind, Exception) and kind.__module__ == errors.__name__:
            yield kind


CLOSED_NAMES: Final[dict[type, str]] = {kind: kind.__name__ for kind in _BUILTIN} | {
    kind: f"perdure.{kind.__name__}" for kind in _ours()
}
CLOSED_TYPES: Final = {name: kind for kind, name in CLOSED_NAMES.items()}


def text_of(error: BaseException) -> str:
    """Return the message. An exception whose `__str__` fails is stored too."""
    return _safe_text(lambda: str(error), error)[:_TEXT_CHARACTERS_MAX]


def attributes_of(error: BaseException) -> dict[str, Any]:
    """Return the attributes of an exception besides its arguments, including notes."""
    found = {name: _read_member(member, error) for name, member in _members(type(error)).items()}
    own = {k: v for k, v in vars(error).items() if type(k) is str and not k.startswith(_OWN_ATTRIBUTES)}
    return {name: value for name, value in found.items() if value is not None} | own


def _members(kind: type) -> dict[str, Any]:
    """Return the members of the builtin class itself, not user properties of the same name."""
    return {
        name: vars(builtin)[name]
        for builtin, names in _ATTRIBUTES.items()
        if issubclass(kind, builtin)
        for name in names
    }


def _read_member(member: Any, error: BaseException) -> Any:
    try:
        return member.__get__(error)
    except AttributeError:
        return None


def limited_repr(value: Any) -> str:
    """Return the repr that replaces an argument which cannot be stored."""
    return _safe_text(lambda: _SHORT.repr(value), value)


def _make_repr() -> reprlib.Repr:
    short = reprlib.Repr()
    short.maxstring = short.maxother = short.maxlong = _REPR_CHARACTERS_MAX
    short.maxlist = short.maxtuple = short.maxset = short.maxfrozenset = short.maxdict = 20
    return short


_SHORT: Final = _make_repr()


def _safe_text(tell: Callable[[], str], value: Any) -> str:
    try:
        return str.__str__(tell())
    # The user's __str__ and __repr__ may raise anything, and the exception must still be recorded.
    except Exception:
        return f"<{type_name(type(value))}>"


def parts_of(error: BaseException) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments and the attributes from which an exception is rebuilt."""
    if is_validation_error(type(error)):
        return validation_parts(error)
    return error.args, attributes_of(error)


def needs_arguments(error: BaseException, kept: int) -> bool:
    """Return whether the exception cannot be rebuilt with a repr in place of an argument, or of all of them."""
    return isinstance(error, ExceptionGroup) or (is_validation_error(type(error)) and kept == 1)


def can_return(error: BaseException) -> bool:
    """Return whether `rebuild` will accept this exception with its arguments."""
    if isinstance(error, _UNICODE):
        return _is_sound(type(error), error.args)
    return type(error) in CLOSED_NAMES or (isinstance(error, Exception) and rebuilds(type(error)))


def rebuild(kind: type[Exception], args: tuple[Any, ...], attributes: dict[str, Any]) -> Exception:
    """Create an exception with these arguments and attributes, without calling its `__init__`."""
    if is_validation_error(kind):
        return rebuild_validation_error(kind, args, attributes)
    base: Any = _builtin_base(kind)
    made: Exception = base.__new__(kind, *(args if issubclass(base, ExceptionGroup) else ()))
    if base in _UNICODE:
        if not _is_sound(base, args):
            raise CorruptValue(f"the stored arguments of {kind.__name__} are not valid for it")
        base.__init__(made, *args)
    _set_args(made, args)  # past a `__setattr__` and an `args` of the class
    members = _members(kind)
    for name, value in attributes.items():
        if name in members:
            members[name].__set__(made, value)
        else:
            made.__dict__[name] = value
    return made


def _builtin_base(kind: type[Exception]) -> type[Exception]:
    """Return the builtin class whose `__new__` creates the object: the one that defines its layout."""
    base: Any = kind
    while base not in _BUILTIN and base is not BaseException:
        base = base.__base__
    if base is BaseException:  # `RunWasCancelled` is an Exception by its second base, which adds nothing to the layout
        base = next(one for one in kind.__mro__ if one in _BUILTIN)
    return cast("type[Exception]", base)


def _is_sound(kind: type[BaseException], args: tuple[Any, ...]) -> bool:
    """Return whether arguments are valid for a UnicodeError: its str() does not check for a negative start."""
    if issubclass(kind, UnicodeTranslateError):
        shapes: tuple[type, ...] = (str, int, int, str)
    else:
        shapes = (str, bytes if issubclass(kind, UnicodeDecodeError) else str, int, int, str)
    if tuple(map(type, args)) != shapes:
        return False
    start, end = args[-3], args[-2]
    return bool(0 <= start <= end < 2**31)


def rebuilds(kind: type[Exception]) -> bool:
    """Return whether exceptions of this type can be rebuilt. Some of extension modules cannot."""
    if issubclass(kind, (ExceptionGroup, *_UNICODE)):
        return True
    try:
        rebuild(kind, (), {})
    except TypeError:
        return False
    return True


def check_rebuilds(kind: type[Exception]) -> None:
    """Refuse to register an exception that could not come back."""
    if not rebuilds(kind):
        raise NotStorable(
            f"{type_name(kind)} cannot be rebuilt outside of its own module",
            hint="do not register it: it comes back as StepFailed, which names it",
        )


def make_step_failed(name: str, version: int, text: str, args: Any, attributes: dict[str, Any]) -> StepFailed:
    """Return the `StepFailed` that replaces an exception whose type is not registered or cannot be rebuilt."""
    shown = name.replace(":", ".", 1)
    hint = f"it was {shown}; " + ("it cannot be rebuilt" if version == TOLD else StepFailed.hint)
    error = StepFailed(text, hint=hint, type_name=shown, args=args)
    notes = attributes.get("__notes__")
    if type(notes) is list:
        error.__notes__ = notes
    return error
