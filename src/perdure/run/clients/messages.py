"""What a client says about a call, and what it is told."""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.errors import ForeignError, NotDone, WrongValue
from perdure.run.doubt import Done, Unknown
from perdure.run.function import CallOptions, CallSignature, DurableFunction
from perdure.run.ledger import Ledger
from perdure.store.base import is_storable_name
from perdure.values.limits import CLIENT_CALLS_AT_ONCE_MAX, NAME_CHARACTERS_MAX

NOTHING: Any = object()
"""A result that was not given."""


class ClientCall(msgspec.Struct, frozen=True):
    """A call of a step or an effect, as the client identifies it."""

    name: str
    arguments: dict[str, Any] = {}
    nth: int = 0
    """Its number among the calls with this scope, name and these arguments, from 0. With an id it does not count."""
    scope: str = ""
    options: CallOptions = CallOptions()

    def function(self, effect: bool) -> DurableFunction:
        """Return the call as a function whose body is elsewhere."""
        if not self.name or len(self.name) > NAME_CHARACTERS_MAX or not is_storable_name(self.name):
            raise WrongValue(f"name={self.name!r}: a step or an effect has a name of at most {NAME_CHARACTERS_MAX}")
        return DurableFunction(self.name, run_body, effect, _NamedArguments(self.name), self.options)

    def check_number(self, ledger: Ledger, ident: bytes) -> int:
        """Return its number. One far beyond those recorded is refused: the ledger keeps a place for each."""
        known = len(ledger.calls.get((self.scope, self.name, ident), ()))
        if not 0 <= self.nth <= known + CLIENT_CALLS_AT_ONCE_MAX:
            raise WrongValue(f"nth={self.nth}: there are {known} calls of {self.name} with these arguments so far")
        return self.nth


def run_body(**arguments: Any) -> None:
    """Stand for a body. The client executes it."""


def ask_check(**arguments: Any) -> None:
    """Stand for the check of an effect. The client executes it."""


class _NamedArguments(CallSignature):
    """The arguments of a call by their names, which the server cannot look up in a signature."""

    def __init__(self, name: str) -> None:
        super().__init__(run_body, ())
        self._function_name = name

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        return kwargs

    def inject(self, kwargs: dict[str, Any], key: str, fence: int) -> dict[str, Any]:
        return kwargs


class ReportedError(msgspec.Struct, frozen=True):
    """An exception of a body."""

    message: str
    type: str = "Error"
    not_done: bool = False
    """Whether it says that nothing happened."""

    def make(self) -> Exception:
        """Return the exception to record."""
        return NotDone(self.message) if self.not_done else ForeignError(self.message, type_name=self.type)


class ReportedEvent(msgspec.Struct, frozen=True):
    """An event of a body."""

    kind: str
    payload: Any = None
    version: int = 0
    """The version of the schema of its kind; 0 if it has none."""


class ReportedUsage(msgspec.Struct, frozen=True):
    """A model call of a body."""

    model: str
    provider: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_tokens: int = 0
    cost_usd: float | None = None


class ReportedWrites(msgspec.Struct, frozen=True):
    """What a body has written to its run. It lands with the end of the body."""

    state: dict[str, Any] = {}
    deleted: tuple[str, ...] = ()
    messages: tuple[Any, ...] = ()
    events: tuple[ReportedEvent, ...] = ()
    usage: tuple[ReportedUsage, ...] = ()
    result: Any = NOTHING
    """The result of the run."""


class BodyReport(msgspec.Struct, frozen=True):
    """How a body has ended."""

    result: Any = None
    error: ReportedError | None = None
    writes: ReportedWrites = ReportedWrites()
    attempt: int = 1
    """Which attempt it was. A repeated report of a failed attempt changes nothing."""


class CheckReport(msgspec.Struct, frozen=True):
    """What the check of an effect in doubt has answered."""

    verdict: str
    """`done`, `not_done` or `unknown`."""
    result: Any = None
    ticket: str = ""
    """The ticket that came with the request to check: it says when the check was asked."""

    def answer(self) -> Any:
        """Return the answer as a check in this process would give it."""
        answers = {"done": Done(self.result), "not_done": NotDone, "unknown": Unknown}
        if self.verdict not in answers:
            raise WrongValue(f"checked.verdict={self.verdict!r}: must be one of 'done', 'not_done', 'unknown'")
        return answers[self.verdict]


class CallAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the client does next."""

    status: str
    """`done`: use the result. `run`: execute the body, then report. `failed`: raise the error. `later`: ask again after
    `after_ms`. `check`: execute the check, then ask again with its answer. `waiting`: a person is asked."""
    result: Any = None
    entry: int = 0
    """The entry of the intent of an effect, or of a recorded failure."""
    error: BaseException | None = None
    key: str = ""
    attempt: int = 0
    after_ms: int = 0
    ticket: str = ""
    question: str = ""
    writes: ReportedWrites | None = None
    """What a recorded body has written to state and messages."""
