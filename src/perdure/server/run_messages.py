"""The requests and answers of the run protocol."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET

from perdure.run.clients.messages import ReportedUsage
from perdure.run.clients.recorded import CallRecord
from perdure.values.limits import LEASE_SECONDS, RETRY_BACKOFF_SECONDS


class _Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A request that refuses unknown fields."""


class OpenRequest(_Strict, frozen=True):
    """Open a run. `client` is a random id of the process that drives it."""

    client: str
    input: Any = None
    lease_ms: int = int(LEASE_SECONDS * 1000)
    on_change: Literal["error", "rerun"] = "error"
    calls: int = 100
    """How many recorded calls to return."""


class OpenedRun(msgspec.Struct, frozen=True):
    """An open run."""

    session: str
    """Sent with every request for this run."""
    run: str
    fence: int
    """The fencing token; 0 for a finished run, which is only read."""
    resumed: bool
    finished: bool
    input: Any
    result: Any
    lease_ms: int
    heartbeat_ms: int
    recorded: int
    """How many calls are recorded."""
    calls: list[CallRecord]
    next: int | None
    """Give it to `calls?after=` for more of them."""


class CallRequest(_Strict, frozen=True):
    """A call of a step or an effect."""

    session: str
    name: str
    arguments: dict[str, Any] = {}
    nth: int = 0
    id: str | None = None
    scope: list[tuple[str | int, Any, int]] = []
    retries: int = 0
    backoff: float = RETRY_BACKOFF_SECONDS
    was: list[str] | None = None


class BodyError(_Strict, frozen=True):
    """An exception of a body."""

    message: str
    type: str = "Error"
    not_done: bool = False


class EventWrite(_Strict, frozen=True):
    """An event."""

    kind: str
    payload: Any = None


class BodyWrites(_Strict, frozen=True):
    """What a body has written to its run."""

    state: dict[str, Any] = {}
    deleted: list[str] = []
    messages: list[Any] = []
    events: list[EventWrite] = []
    usage: list[ReportedUsage] = []
    result: Any = UNSET


class CheckVerdict(_Strict, frozen=True):
    """What the check of an effect has answered."""

    verdict: Literal["done", "not_done", "unknown"]
    result: Any = None
    ticket: str = ""


class StepRequest(CallRequest, frozen=True):
    """Look a step up; or, with `result` or `error`, record how its body has ended."""

    version: int = 1
    result: Any = UNSET
    error: BodyError | None = None
    writes: BodyWrites = BodyWrites()
    attempt: int = 1


class IntendRequest(CallRequest, frozen=True):
    """Start an effect, or learn what is known about it."""

    timeout: float | None = None
    check: bool = False
    in_doubt: Literal["ask", "retry", "fail"] = "ask"
    on_change: Literal["error", "rerun"] | None = None
    checked: CheckVerdict | None = None
    passed: list[int] | None = None


class OutcomeRequest(_Strict, frozen=True):
    """Record how the body of an effect has ended."""

    session: str
    name: str
    intent: int
    result: Any = UNSET
    error: BodyError | None = None
    writes: BodyWrites = BodyWrites()
    attempt: int = 1
    check: bool = False
    checked: CheckVerdict | None = None
    retries: int = 0
    backoff: float = RETRY_BACKOFF_SECONDS


class AskRequest(_Strict, frozen=True):
    """Ask a person; ask again until there is an answer."""

    session: str
    question: str
    kind: Literal["ask", "approve"] = "ask"
    choices: list[Any] | None = None
    timeout: float | None = None
    default: Any = UNSET
    id: str | None = None


class HeartbeatRequest(_Strict, frozen=True):
    """Renew the lease."""

    session: str


class CloseRequest(_Strict, frozen=True):
    """Leave a run."""

    session: str
    how: Literal["finished", "failed", "interrupted", "waiting", "stopped"] = "finished"
    result: Any = UNSET
    error: BodyError | None = None
    cause: int = 0


class ErrorReply(msgspec.Struct, frozen=True):
    """A recorded exception."""

    type: str
    message: str


class WritesReply(msgspec.Struct, frozen=True):
    """What a recorded body has written to state and messages."""

    state: dict[str, Any]
    deleted: list[str]
    messages: list[Any]


class CallReply(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the client does next."""

    status: Literal["done", "run", "failed", "later", "check", "waiting"]
    result: Any = None
    entry: int = 0
    key: str = ""
    attempt: int = 0
    after_ms: int = 0
    lease_ms: int = 0
    ticket: str = ""
    question: str = ""
    error: ErrorReply | None = None
    writes: WritesReply | None = None


class LeaseReply(msgspec.Struct, frozen=True):
    """A renewed lease."""

    lease_ms: int
    order: str
    """`cancel` or `pause` if the run has to stop: close it with `stopped`."""


class ClosedRun(msgspec.Struct, frozen=True):
    """A run that was left."""

    status: str


class CallList(msgspec.Struct, frozen=True):
    """A page of recorded calls."""

    calls: list[CallRecord]
    next: int | None


class CallsQuery(msgspec.Struct, frozen=True):
    """Which page, for which session."""

    session: str
    after: int = 0
    limit: int = 100
