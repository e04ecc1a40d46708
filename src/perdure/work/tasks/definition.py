"""The declaration of a task: its function, its arguments, and its retry options."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.errors import WrongType, WrongValue
from perdure.kernel.awaitables import is_async, refuse_generators, require_plain
from perdure.kernel.names import check_storable_name
from perdure.run.function import signature_of
from perdure.values.durations import Duration, seconds_of
from perdure.values.limits import RETRY_BACKOFF_SECONDS
from perdure.values.numbers import require_whole_number, seconds

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

TaskKey = str | Callable[..., Any] | None
"""What runs are limited by together: the name of a parameter, or a function of the arguments."""

PRIORITY_MAX = 1_000_000


class TaskOptions(msgspec.Struct, frozen=True):
    """Options of a task. `options(...)` replaces some of them for one start."""

    queue: str = "default"
    priority: int = 0
    delay: Duration | None = None
    retries: int = 0
    backoff: float = RETRY_BACKOFF_SECONDS
    key: TaskKey = None

    def __post_init__(self) -> None:
        check_storable_name(self.queue, "the name of a queue", empty=False)
        if type(self.priority) is not int or abs(self.priority) > PRIORITY_MAX:
            raise WrongValue(f"priority={self.priority!r}: must be an int of at most {PRIORITY_MAX}; higher runs first")
        require_whole_number("retries", self.retries, 0)
        seconds("backoff", self.backoff)
        if self.delay is not None:
            seconds_of(self.delay, "delay")


class TaskDefinition:
    """A task's function and its signature."""

    def __init__(self, call: Callable[..., Any], name: str | None, options: TaskOptions, *, awaits: bool) -> None:
        self.call = call
        self.name = check_storable_name(str(name or getattr(call, "__name__", type(call).__name__)), "a task's name")
        refuse_generators(call, self.name)
        if not awaits and is_async(call):
            raise WrongType(f"{self.name} is async: use AsyncAgent, whose tasks are awaited")
        self.options = options
        self._signature = signature_of(call)
        parameters = self._signature.parameters
        self.wants_run = "run" in parameters and parameters["run"].default is inspect.Parameter.empty
        """Whether the function takes the open run as parameter `run`."""
        self._require_parameter(options.key)

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the input of a run, by parameter name. A wrong call raises the usual TypeError."""
        if not self.wants_run:
            bound = self._signature.bind(*args, **kwargs)
        elif "run" in kwargs:
            raise WrongType(f"{self.name}() gets its run from Perdure: do not pass run=")
        else:
            bound = self._drop_run_parameter().bind(*args, **kwargs)
        return dict(bound.arguments)

    def _drop_run_parameter(self) -> inspect.Signature:
        parameters = [parameter for parameter in self._signature.parameters.values() if parameter.name != "run"]
        return self._signature.replace(parameters=parameters)

    def bind_input(self, given: Any, run: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the positional and keyword arguments for an input."""
        names = self._signature.parameters
        if not isinstance(given, dict) or not set(given) <= set(names):
            strange = ", ".join(sorted(set(given) - set(names))) if isinstance(given, dict) else repr(given)
            raise WrongType(f"task {self.name} has no parameter for this input of its run: {strange}")
        values = {**given, "run": run} if self.wants_run else given
        bound = inspect.BoundArguments(self._signature, {name: values[name] for name in names if name in values})
        return bound.args, bound.kwargs

    def _require_parameter(self, key: TaskKey) -> None:
        known = self._signature.parameters
        if isinstance(key, str) and key not in known:
            raise WrongValue(f"key={key!r}: {self.name} has no such parameter; it has {', '.join(known) or 'none'}")

    def key(self, key: TaskKey, given: dict[str, Any]) -> str:
        """Return the limit key of a run with this input."""
        if key is None:
            return ""
        if not isinstance(key, str):
            return _check_key(require_plain(key(**given), key))
        self._require_parameter(key)
        bound = inspect.BoundArguments(self._signature, dict(given))
        bound.apply_defaults()
        return _check_key(bound.arguments[key])


def _check_key(key: Any) -> str:
    return check_storable_name("" if key is None else str(key), "the key of a run", error=WrongValue)


class Tasks(dict[str, Any]):
    """The tasks that an agent has declared, by name: what its workers can execute."""


def tasks_of(engine: Engine) -> Tasks:
    """Return the tasks that an agent has declared."""
    return engine.parts.get(Tasks)
