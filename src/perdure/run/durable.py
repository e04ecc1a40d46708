"""The callables that `@agent.step` and `@agent.effect` return. They detect whether they are called inside a run."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable
from functools import partial, update_wrapper
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

import msgspec

from perdure.errors import Abandoned, EffectInsideStep, NotDurable, NotDurableWarning, WrongAgent, WrongType
from perdure.kernel.awaitables import is_async, is_awaitable, refuse_generators
from perdure.kernel.protocol import Protocol, drive_async, drive_sync
from perdure.kernel.scope import FRAME, Frame, current_frame
from perdure.run.core import core_of
from perdure.run.doubt import takes_key
from perdure.run.effect import call_effect
from perdure.run.function import CallOptions, DurableFunction, function
from perdure.run.outcome import EffectCall
from perdure.run.step import call_step

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

P = ParamSpec("P")
R = TypeVar("R")


class Durable(Generic[P, R]):
    """A step or an effect. In a run, each call executes once; `options(...)` changes how for one call."""

    def __init__(
        self,
        engine: Engine,
        definition: DurableFunction,
        options: CallOptions,
        *,
        awaits: bool,
        bound: tuple[Any, ...] = (),
    ) -> None:
        self._engine = engine
        self._function = definition
        self._options = options
        self._awaits = awaits
        self._bound = bound
        self._warned = False
        self.early = engine.open_runs == 0
        """Whether it was declared before the first run opened. If so, the names of all durable functions are known."""
        update_wrapper(self, definition.call)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        given = self._bound + args if self._bound else args
        if self._awaits:
            return self._await(given, kwargs)  # type: ignore[return-value]
        protocol = self._plan(given, kwargs)
        if protocol is None:
            result: R = self._function.call(*given, **self._call_plain(kwargs))
            return result
        done: R = drive_sync(self._engine.store, protocol)
        return done

    async def _await(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        protocol = self._plan(args, kwargs)
        if protocol is not None:
            return await drive_async(self._engine.store, protocol)
        result = self._function.call(*args, **self._call_plain(kwargs))
        while is_awaitable(result):
            result = await result
        return result

    def options(self, **changes: Any) -> Durable[P, R]:
        """Return a copy with other options, for example `book.options(id="leg-1")(flight)`."""
        if unknown := changes.keys() - set(CallOptions.__struct_fields__):
            raise WrongType(f"options() does not know {', '.join(sorted(unknown))}")
        options = msgspec.structs.replace(self._options, **changes)
        return Durable(self._engine, self._function, options, awaits=self._awaits, bound=self._bound)

    def __get__(self, instance: object, owner: type | None = None) -> Durable[..., R]:
        if instance is None:
            return self
        return Durable(self._engine, self._function, self._options, awaits=self._awaits, bound=(instance,))

    @property
    def definition(self) -> DurableFunction:
        """The wrapped function and its signature."""
        return self._function

    def __repr__(self) -> str:
        return f"<{'effect' if self._function.effect else 'step'} {self._function.name} of {self._engine.name}>"

    @property
    def name(self) -> str:
        """The name under which calls are recorded."""
        return self._function.name

    @property
    def was(self) -> tuple[str, ...]:
        """Earlier names under which calls were recorded."""
        return self._options.was or ()

    @property
    def check(self) -> Callable[..., Any] | None:
        """The function that finds out whether a call of the effect happened."""
        return self._options.check

    def _plan(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Protocol[Any] | None:
        """Return the protocol of this call, or None for a plain call."""
        frame = FRAME.get()
        if frame is not None and not frame.alive:
            frame = current_frame()
        if frame is None:
            self._refuse_outside()
            return None
        if frame.inside:
            self._refuse_inside(frame)
            return None
        return self.call_in_frame(frame, args, kwargs)

    def call_in_frame(self, frame: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Protocol[Any]:
        """Return the protocol of a call in a frame of a run."""
        engine = frame.run.engine
        if engine is not self._engine and (engine.name, engine.url) != (self._engine.name, self._engine.url):
            raise WrongAgent(
                f"{self._function.name} belongs to agent {self._engine.name!r}, the run to {engine.name!r}"
            )
        run = core_of(frame)
        if self._function.effect:
            call: Callable[..., Protocol[Any]] = call_effect
            given: tuple[Any, ...] = (EffectCall(run, frame, self._function, self._options, args, kwargs),)
        else:
            call, given = call_step, (frame, self._function, self._options, args, kwargs)
        if run.parking is not None:
            return run.parking.execute_counted(partial(call, *given))
        return call(*given)

    def _refuse_inside(self, frame: Frame) -> None:
        if not frame.alive:
            raise Abandoned
        if self._function.effect:
            raise EffectInsideStep(f"effect {self._function.name} is called inside a {frame.inside}")

    def _refuse_outside(self) -> None:
        """Refuse or warn about a call outside of a run. Warns once per function."""
        name, engine = self._function.name, self._engine
        if engine.open_runs:
            raise NotDurable(f"{name} is called outside of the context of agent {engine.name!r}'s open run")
        if self._function.effect and self._options.outside != "allow":
            raise NotDurable(f"effect {name} is called outside of a run")
        if self._function.effect and engine.rehearsal is not None:
            engine.rehearsal.refuse_effect(name)
        if engine.strict:
            raise NotDurable(f"{name} is called outside of a run")
        if not self._warned:
            self._warned = True
            warnings.warn(f"{name} is called outside of a run: nothing is remembered", NotDurableWarning, stacklevel=4)

    def _call_plain(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        signature = self._function.signature
        if not self._function.effect or not (signature.wants_key(kwargs) or signature.wants_fence(kwargs)):
            return kwargs
        return signature.inject(kwargs, self._engine.store.clock.key(), 0)


def make_durable(
    engine: Engine,
    call: Callable[..., Any],
    *,
    effect: bool,
    name: str | None,
    ignore: Iterable[str],
    options: CallOptions,
    always_async: bool,
) -> Durable[..., Any]:
    """Wrap a function. A wrapped one is returned unchanged."""
    if isinstance(call, Durable):
        return call
    definition = function(call, effect=effect, name=name, ignore=ignore, options=options)
    refuse_generators(call, definition.name)
    if not always_async and is_async(call):
        raise WrongType(f"{definition.name} is async: use AsyncAgent, whose steps and effects are awaited")
    if options.check is not None:
        _refuse_misfit(definition, options.check, always_async)
    return Durable(engine, definition, options, awaits=always_async)


def _refuse_misfit(definition: DurableFunction, check: Callable[..., Any], awaits: bool) -> None:
    """Raise early for a check that could not be called when it is needed."""
    refuse_generators(check, f"the check of {definition.name}")
    if not awaits and is_async(check):
        raise WrongType(f"the check of {definition.name} is async, but the effect is not")
    args, kwargs = definition.signature.example()
    if takes_key(check):
        kwargs["key"] = ""
    try:
        inspect.signature(check).bind(*args, **kwargs)
    except TypeError as error:
        raise WrongType(f"the check of {definition.name} must take the effect's arguments, and key: {error}") from None
