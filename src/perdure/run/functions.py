"""The user's function behind a step or an effect: its name, its options, and which arguments identify a call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from types import MethodDescriptorType, WrapperDescriptorType
from typing import Any, NewType

import msgspec

from .. import codec
from ..errors import NotStorable
from ..limits import RETRY_BACKOFF_SECONDS
from ..store.base import holds

Key = NewType("Key", str)
"""Annotate a parameter with it to have the idempotency key put there."""

Fence = NewType("Fence", int)
"""Annotate a parameter with it to have the fencing number of the run's lease put there.

Whoever takes the run over has a larger one: a system that keeps the largest number it has seen can refuse a late call.
"""


EXPLICIT = b"="
"""Begins the ident of a call with an explicit id."""

DIGEST = b"#"
"""Begins the ident of a call that is known by its arguments."""


class Options(msgspec.Struct, frozen=True):
    """What can be said about a step or an effect; `options(...)` replaces some of them for one call."""

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
    """Its earlier names; none at all says that it is new, and None says nothing."""

    def __post_init__(self) -> None:
        _one_of("in_doubt", self.in_doubt, ("ask", "retry", "fail"))
        _one_of("outside", self.outside, ("refuse", "allow"))
        _one_of("on_change", self.on_change, (None, "error", "rerun"))
        if self.retries < 0 or self.backoff < 0 or (self.timeout is not None and self.timeout <= 0):
            raise ValueError("retries and backoff cannot be negative, and a timeout must be above 0")
        if self.was is not None:
            msgspec.structs.force_setattr(self, "was", earlier_names(self.was))


def earlier_names(was: object) -> tuple[str, ...] | None:
    """What is given as `was=`: a name, or several, or nothing."""
    if was is None:
        return None
    names = (was,) if isinstance(was, str) else tuple(was) if isinstance(was, Iterable) else (was,)
    if not all(isinstance(name, str) and name for name in names):
        raise TypeError(f'was={was!r}: give the earlier name, was="search", or several of them')
    return names


def _one_of(name: str, value: object, allowed: tuple[object, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name}={value!r}: choose one of {', '.join(map(repr, allowed))}")


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """What a function takes, as far as it tells."""
    try:
        return inspect.signature(function)
    except ValueError:
        return _ANYTHING


_MISSING = object()

_OF_BUILTINS = (MethodDescriptorType, WrapperDescriptorType)

_ANYTHING = inspect.signature(lambda *args, **kwargs: None)
"""For `max`, `int` and other builtins, which do not tell what they take."""


class Signature:
    """How a function's arguments are told apart; made once, used at every call."""

    def __init__(self, function: Callable[..., Any], ignore: Iterable[str], *, effect: bool = True) -> None:
        self._signature = signature_of(function)
        self._function_name = getattr(function, "__name__", "call")
        parameters = self._signature.parameters
        self.key_name = _injected(parameters.values(), "key", (Key, "Key", "perdure.Key"))
        fenced = _injected(parameters.values(), "fence", (Fence, "Fence", "perdure.Fence"))
        self.fence_name = fenced if effect else None
        ignored = {*_known(ignore, parameters), self.key_name}
        # Not of `str.upper` and the like, whose `self` is the very value that they work on.
        if parameters and next(iter(parameters)) in ("self", "cls") and not isinstance(function, _OF_BUILTINS):
            ignored.add(next(iter(parameters)))
        self._names = tuple(parameters)
        self._kept = tuple(name for name in parameters if name not in ignored)
        self._kept_unfenced = tuple(name for name in self._kept if name != self.fence_name)
        self._defaults = {n: p.default for n, p in parameters.items() if p.default is not p.empty}
        kinds = {p.kind for p in parameters.values()}
        self._plain = kinds <= {inspect.Parameter.POSITIONAL_OR_KEYWORD}

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """What identifies a call, by parameter name and in their order, defaults filled in."""
        if self._plain and not kwargs and len(args) == len(self._names):
            given = dict(zip(self._names, args, strict=True))
        else:
            given = self._bind(args, kwargs)
        # A fencing number that the caller gives is an argument like any other; one that is put in is not.
        kept = self._kept_unfenced if self.wants_fence(kwargs) else self._kept
        if len(kept) == len(given):
            return given
        return {name: given[name] for name in kept if name in given}

    def injected(self, kwargs: dict[str, Any], key: str, fence: int) -> dict[str, Any]:
        """The keyword arguments of an effect's body: what the caller did not give is put in."""
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
        bound = self._signature.bind(*args, **kwargs)  # a wrong call is the same TypeError as without Perdure
        bound.apply_defaults()
        return dict(bound.arguments)

    def digest(self, arguments: dict[str, Any], version: int) -> bytes:
        """Sixteen bytes that stand for the arguments; the error names the one that cannot be stored."""
        try:
            return codec.digest((arguments, version) if version != 1 else arguments, self._function_name)
        except NotStorable as error:
            raise NotStorable(error.message, hint="or leave the parameter out with ignore=(...)") from None

    def left_out(self, arguments: dict[str, Any]) -> list[str]:
        """The parameters that have their default, because the caller did not give them, in their order."""
        return [name for name, default in self._defaults.items() if arguments.get(name, _MISSING) is default]

    def example(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments of the form that a full call has, without what is put in."""
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
        """Whether the key is to be put in."""
        return self.key_name is not None and self.key_name not in kwargs

    def wants_fence(self, kwargs: dict[str, Any]) -> bool:
        """Whether the fencing number is to be put in."""
        return self.fence_name is not None and self.fence_name not in kwargs


def _known(ignore: Iterable[str], parameters: Any) -> tuple[str, ...]:
    names = tuple(ignore)
    for name in names:
        if name not in parameters:
            raise ValueError(f"ignore={name!r}: there is no such parameter")
    return names


def _injected(parameters: Iterable[inspect.Parameter], name: str, annotations: tuple[object, ...]) -> str | None:
    """The parameter that Perdure fills: annotated so, or of that name, keyword-only and without a default."""
    for parameter in parameters:
        if parameter.annotation in annotations:
            return parameter.name
        alone = parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty
        if parameter.name == name and alone:
            return name
    return None


class Function(msgspec.Struct, frozen=True):
    """A step or an effect as declared."""

    name: str
    call: Callable[..., Any]
    effect: bool
    signature: Signature
    options: Options

    def ident(self, arguments: dict[str, Any], options: Options) -> bytes:
        """What a recorded call must have to be this one: its explicit id, else the digest of its arguments."""
        if options.id is not None:
            return EXPLICIT + options.id.encode()
        # An effect is matched whatever its version: that it has happened does not depend on how it is written.
        return DIGEST + self.signature.digest(arguments, 1 if self.effect else options.version)

    def earlier_idents(self, arguments: dict[str, Any], options: Options) -> Iterator[bytes]:
        """What the same call had before parameters were added, at the end and with defaults, that it does not give."""
        if options.id is None:
            left = dict(arguments)
            for name in reversed(self.signature.left_out(arguments)):
                del left[name]
                yield self.ident(left, options)


def function(
    call: Callable[..., Any], *, effect: bool, name: str | None, ignore: Iterable[str], options: Options
) -> Function:
    """Look at a function once."""
    label = str(name or getattr(call, "__name__", type(call).__name__))
    if not holds(label):
        raise ValueError(f"a name has no NUL character and no lone surrogate, unlike {label!r}")
    return Function(label, call, effect, Signature(call, ignore, effect=effect), options)
