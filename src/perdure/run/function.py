"""The user function of a step or an effect: its name, its options, and the arguments that identify a call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from types import MethodDescriptorType, WrapperDescriptorType
from typing import Any, NewType

import msgspec

from perdure.errors import NotStorable, WrongType, WrongValue
from perdure.kernel.names import check_storable_name
from perdure.store.base import is_storable_name
from perdure.values import codec
from perdure.values.codec.registry import declare_annotations
from perdure.values.limits import RETRY_BACKOFF_SECONDS
from perdure.values.numbers import require_whole_number, seconds

Key = NewType("Key", str)
"""Type of the parameter that receives the idempotency key."""

Fence = NewType("Fence", int)
"""Type of the parameter that receives the fencing token of the run's lease.

After a takeover the token is larger: a system that remembers the largest token it has seen can refuse a late call.
"""


EXPLICIT = b"="
"""Prefix of the ident of a call with an explicit id."""

DIGEST = b"#"
"""Prefix of the ident of a call that is identified by its arguments."""


class CallOptions(msgspec.Struct, frozen=True):
    """The options of a step or an effect. `options(...)` replaces some of them for one call."""

    id: str | None = None
    retries: int = 0
    backoff: float = RETRY_BACKOFF_SECONDS
    timeout: float | None = None
    version: int = 1
    check: Callable[..., Any] | None = None
    in_doubt: str = "ask"
    not_done: tuple[type[BaseException], ...] = ()
    outside: str = "refuse"
    on_change: str | None = None
    was: tuple[str, ...] | None = None
    """Its earlier names. An empty tuple says that it is new; None says nothing."""
    retry_unstorable: bool = False
    """Whether a step whose result could not be stored runs again on resume, and is paid again."""

    def __post_init__(self) -> None:
        _require_one_of("in_doubt", self.in_doubt, ("ask", "retry", "fail"))
        _require_one_of("outside", self.outside, ("refuse", "allow"))
        _require_one_of("on_change", self.on_change, (None, "error", "rerun"))
        if self.id is not None:
            check_storable_name(self.id, "the id of a call")
        require_whole_number("retries", self.retries, 0)
        require_whole_number("version", self.version, 1)
        seconds("backoff", self.backoff)
        if self.timeout is not None:
            seconds("timeout", self.timeout, above_zero=True)
        if self.was is not None:
            msgspec.structs.force_setattr(self, "was", check_earlier_names(self.was))


def check_earlier_names(was: object) -> tuple[str, ...] | None:
    """Validate `was=`: a name, several names, or None."""
    if was is None:
        return None
    names = (was,) if isinstance(was, str) else tuple(was) if isinstance(was, Iterable) else (was,)
    if not all(isinstance(name, str) and name for name in names):
        raise WrongType(f'was={was!r}: pass the earlier name, was="search", or several of them')
    return names


def _require_one_of(name: str, value: object, allowed: tuple[object, ...]) -> None:
    if value not in allowed:
        raise WrongValue(f"{name}={value!r}: must be one of {', '.join(map(repr, allowed))}")


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a function, or one that accepts anything."""
    if not callable(function):
        raise WrongType(f"{function!r} is not a function", hint="pass the function itself, and its arguments after it")
    try:
        return inspect.signature(function)
    except ValueError:
        return _ANYTHING


_MISSING = object()

_OF_BUILTINS = (MethodDescriptorType, WrapperDescriptorType)

_ANYTHING = inspect.signature(lambda *args, **kwargs: None)
"""For `max`, `int` and other builtins without a signature."""


class CallSignature:
    """Identifies calls of a function by their arguments. Built once, used at every call."""

    def __init__(self, function: Callable[..., Any], ignore: Iterable[str], *, effect: bool = True) -> None:
        self._signature = signature_of(function)
        self._function_name = getattr(function, "__name__", "call")
        parameters = self._signature.parameters
        self.key_name = _find_injected(parameters.values(), "key", (Key, "Key", "perdure.Key"))
        fenced = _find_injected(parameters.values(), "fence", (Fence, "Fence", "perdure.Fence"))
        self.fence_name = fenced if effect else None
        ignored = {*_check_parameters(ignore, parameters), self.key_name}
        # `self` of `str.upper` and the like is the value itself.
        if parameters and next(iter(parameters)) in ("self", "cls") and not isinstance(function, _OF_BUILTINS):
            ignored.add(next(iter(parameters)))
        self._names = tuple(parameters)
        self._kept = tuple(name for name in parameters if name not in ignored)
        self._kept_unfenced = tuple(name for name in self._kept if name != self.fence_name)
        self._defaults = {n: p.default for n, p in parameters.items() if p.default is not p.empty}
        kinds = {p.kind for p in parameters.values()}
        plain = kinds <= {inspect.Parameter.POSITIONAL_OR_KEYWORD}
        self._count = len(self._names) if plain and self._kept == self._names and self.fence_name is None else -1
        """How many positional arguments are all that identifies a call; -1 if that depends."""

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments that identify a call, in the order of the parameters, with defaults."""
        if len(args) == self._count and not kwargs:
            return dict(zip(self._names, args, strict=True))
        given = self._bind(args, kwargs)
        # A fencing token that the caller passes is an argument like any other; an injected one is not.
        kept = self._kept_unfenced if self.fence_name is not None and self.wants_fence(kwargs) else self._kept
        if len(kept) == len(given):
            return given
        return {name: given[name] for name in kept if name in given}

    def inject(self, kwargs: dict[str, Any], key: str, fence: int) -> dict[str, Any]:
        """Return the keyword arguments of an effect's body, with key and fencing token where it takes them."""
        if self.key_name is None and self.fence_name is None:
            return kwargs
        if self.wants_key(kwargs):
            kwargs = {**kwargs, str(self.key_name): key}
        if self.wants_fence(kwargs):
            kwargs = {**kwargs, str(self.fence_name): fence}
        return kwargs

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        if self.key_name is not None and self.key_name not in kwargs:
            kwargs = {**kwargs, self.key_name: ""}
        if self.wants_fence(kwargs):
            kwargs = {**kwargs, str(self.fence_name): 0}
        bound = self._signature.bind(*args, **kwargs)  # a wrong call raises the same TypeError as without Perdure
        bound.apply_defaults()
        return dict(bound.arguments)

    def digest(self, arguments: dict[str, Any], version: int) -> bytes:
        """Return a digest of the arguments, 16 bytes. The error names an argument that cannot be stored."""
        try:
            return codec.digest((arguments, version) if version != 1 else arguments, self._function_name)
        except NotStorable as error:
            others = f"; or {error.hint}" if error.hint else ""
            raise NotStorable(error.message, hint=f"exclude the parameter with ignore=(...){others}") from None

    def list_defaulted(self, arguments: dict[str, Any]) -> list[str]:
        """Return the parameters that the caller left at their defaults, in order."""
        return [name for name, default in self._defaults.items() if arguments.get(name, _MISSING) is default]

    def example(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return arguments for a full call, without injected ones."""
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for parameter in self._signature.parameters.values():
            if parameter.name in (self.key_name, self.fence_name):
                continue
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                positional.append(None)
            elif parameter.kind is parameter.KEYWORD_ONLY:
                named[parameter.name] = None
        return tuple(positional), named

    def wants_key(self, kwargs: dict[str, Any]) -> bool:
        """Whether the key must be injected."""
        return self.key_name is not None and self.key_name not in kwargs

    def wants_fence(self, kwargs: dict[str, Any]) -> bool:
        """Whether the fencing token must be injected."""
        return self.fence_name is not None and self.fence_name not in kwargs


def check_exceptions(name: str, given: object) -> tuple[type[BaseException], ...]:
    """Return exception types as a tuple. One type is accepted as it is, as `except` does."""
    types = (given,) if isinstance(given, type) else given
    if not isinstance(types, tuple | list) or not all(
        isinstance(t, type) and issubclass(t, BaseException) for t in types
    ):
        raise WrongType(f"{name}={given!r} must be exception types", hint=f"for example {name}=(ConnectionError,)")
    return tuple(types)


def _check_parameters(ignore: Iterable[str], parameters: Any) -> tuple[str, ...]:
    if not isinstance(ignore, Iterable):
        raise WrongType(f"ignore={ignore!r} must be a list of parameters", hint='for example ignore=["client"]')
    names = (ignore,) if isinstance(ignore, str) else tuple(ignore)
    for name in names:
        if name not in parameters:
            raise WrongValue(f"ignore={name!r}: there is no such parameter")
    return names


def _find_injected(parameters: Iterable[inspect.Parameter], name: str, annotations: tuple[object, ...]) -> str | None:
    """Return the parameter that Perdure fills: by its annotation, or by its name if keyword-only without a default."""
    for parameter in parameters:
        if parameter.annotation in annotations:
            return parameter.name
        alone = parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty
        if parameter.name == name and alone:
            return name
    return None


class DurableFunction(msgspec.Struct, frozen=True):
    """A step or an effect as declared."""

    name: str
    call: Callable[..., Any]
    effect: bool
    signature: CallSignature
    options: CallOptions

    def ident(self, arguments: dict[str, Any], options: CallOptions) -> bytes:
        """Return the identity of a call: its explicit id, or the digest of its arguments."""
        if options.id is not None:
            return EXPLICIT + options.id.encode()
        # An effect matches in every version: that it happened does not depend on its code.
        return DIGEST + self.signature.digest(arguments, 1 if self.effect else options.version)

    def iterate_earlier_idents(self, arguments: dict[str, Any], options: CallOptions) -> Iterator[bytes]:
        """Yield the identities of the same call before trailing parameters with defaults were added."""
        if options.id is None:
            left = dict(arguments)
            for name in reversed(self.signature.list_defaulted(arguments)):
                del left[name]
                yield self.ident(left, options)


def function(
    call: Callable[..., Any], *, effect: bool, name: str | None, ignore: Iterable[str], options: CallOptions
) -> DurableFunction:
    """Inspect a function."""
    label = str(name or getattr(call, "__name__", type(call).__name__))
    if not is_storable_name(label):
        raise WrongValue(f"a name must not contain NUL characters or lone surrogates: {label!r}")
    declare_annotations(call)
    return DurableFunction(label, call, effect, CallSignature(call, ignore, effect=effect), options)
