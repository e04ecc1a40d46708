"""Actions that must happen once, for agents that execute them themselves: intent before, outcome after.

Each key is a run with one effect. The caller is its client (`perdure.run.clients`): it holds the lease while it acts.
"""

from __future__ import annotations

import secrets
from functools import partial
from typing import Any, Literal

import msgspec

from perdure.errors import InDoubt, NothingToAnswer, RunBusy, WrongValue
from perdure.journal import objects
from perdure.journal.leases import Lease, lease_of
from perdure.journal.lineage import events_of
from perdure.kernel.engine import Engine
from perdure.kernel.protocol import Protocol, Read
from perdure.platform.process import Holder
from perdure.run.answers import RunAnswer, give_answer
from perdure.run.clients.calls import intend_effect, report_outcome
from perdure.run.clients.messages import BodyReport, ClientCall, ReportedError
from perdure.run.clients.session import (
    ClientIdentity,
    ClientLeaseKeeper,
    ClientSession,
    RunEnding,
    close_session,
    open_session,
)
from perdure.run.function import CallOptions
from perdure.run.ledger import Ledger, RecordedCall
from perdure.store.rows import read_run

PREFIX = "once:"
"""Before the key in the id of its run."""
CALL = "act_once"
LOOKS = 3
"""How often a begin looks again after somebody else was faster."""

OnceStatus = Literal["go", "done", "in_progress", "unknown", "not_done"]
OnceOutcome = Literal["done", "not_done", "unknown"]


class OnceHolder(msgspec.Struct, frozen=True):
    """Who acts: an id of the session, and the process that it ends with, if that is on this host."""

    client: str
    process: Holder | None = None
    label: str = "mcp"

    def keeper(self, engine: Engine) -> ClientLeaseKeeper:
        """Return the leases of this holder."""
        return ClientLeaseKeeper(engine.store, ClientIdentity(self.client), process=self.process)


class OnceAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known about an action."""

    status: OnceStatus
    key: str
    result: Any = None
    ticket: str = ""
    """Proves to `finish_once` that this session was told to go."""
    holder: str = ""
    mine: bool = False
    """Whether this session has begun it."""
    action: str = ""
    details: Any = None


class _KnownAction(msgspec.Struct, frozen=True):
    """What the store says about a key."""

    lease: Lease
    recorded: RecordedCall | None = None
    action: str = ""
    details: Any = None
    result: Any = None
    answered: bool = False

    @property
    def done(self) -> bool:
        return self.recorded is not None and self.recorded.done

    @property
    def in_doubt(self) -> bool:
        return self.recorded is not None and self.recorded.in_doubt


def begin(engine: Engine, key: str, action: str, details: Any, holder: OnceHolder) -> Protocol[OnceAnswer]:
    """Commit the intent to act, or tell what is known about an earlier one. Only `go` allows to act."""
    for _ in range(LOOKS):
        known: _KnownAction | None = yield Read(_look, (engine, key))
        if known is not None and (told := _tell(engine, key, known, holder)) is not None:
            return told
        try:
            return (yield from _start(engine, key, action, details, holder))
        except RunBusy:
            continue  # somebody else was faster: tell what it does
    raise RunBusy(f"others begin {key!r} at the same time; nothing was changed", hint="call begin_once again")


def _tell(engine: Engine, key: str, known: _KnownAction, holder: OnceHolder) -> OnceAnswer | None:
    """Return the answer that needs no change; None if the action may start or an answer must be applied."""
    about = {"action": known.action, "details": known.details}
    if known.done:
        return OnceAnswer("done", key, known.result, **about)
    if known.lease.is_alive():
        mine = known.lease.holder_id == holder.keeper(engine).holder_id
        return OnceAnswer("in_progress", key, holder=str(known.lease.process), mine=mine, **about)
    if known.in_doubt and not known.answered:
        return OnceAnswer("unknown", key, holder=str(known.lease.process or ""), **about)
    return None


def _start(engine: Engine, key: str, action: str, details: Any, holder: OnceHolder) -> Protocol[OnceAnswer]:
    """Claim the run of the key, and commit the intent."""
    session = yield from open_session(engine, PREFIX + key, None, ClientIdentity(holder.client), process=holder.process)
    call = _call_of({"key": key, "action": action, "details": details})
    try:
        told = yield from intend_effect(session, call, secrets.token_hex(16), passed=())
    except InDoubt:
        yield from close_session(session, RunEnding("interrupted"))
        raise
    if told.status == "run":
        return OnceAnswer("go", key, ticket=str(session.identity), mine=True, action=action, details=details)
    yield from close_session(session, RunEnding("finished", told.result))
    return OnceAnswer("done", key, told.result)


def finish(
    engine: Engine, key: str, outcome: OnceOutcome, result: Any, holder: OnceHolder, ticket: str = ""
) -> Protocol[OnceAnswer]:
    """Record how an action has ended. The first report counts."""
    known: _KnownAction | None = yield Read(_look, (engine, key))
    if known is None or known.recorded is None:
        raise NothingToAnswer(f"nothing was begun under the key {key!r}", hint="call begin_once first, then act")
    if known.done:
        return OnceAnswer("done", key, known.result)
    identity = _find_identity(engine, known, holder, ticket)
    if identity is not None:
        session = ClientSession(engine, PREFIX + key, identity, holder.process)
        return (yield from _report(session, key, known.recorded, outcome, result))
    if known.lease.is_alive():
        raise RunBusy(
            f"{known.lease.process} is doing {key!r}; nothing was changed",
            hint="only the session that got `go` can finish it; pass the ticket that begin_once gave you",
        )
    if not known.in_doubt:
        raise NothingToAnswer(f"{key!r} did not happen so far, and nobody is doing it", hint="call begin_once first")
    return (yield from _settle(engine, key, known.recorded, outcome, result, holder))


def _find_identity(engine: Engine, known: _KnownAction, holder: OnceHolder, ticket: str) -> ClientIdentity | None:
    """Return the identity under which the caller still holds the run; None if it does not."""
    identity = ClientIdentity.parse(ticket) if ticket else ClientIdentity(holder.client, fence=known.lease.fence)
    keeper = ClientLeaseKeeper(engine.store, identity)
    held = known.lease.holder_id == keeper.holder_id and known.lease.fence == identity.fence
    return identity if held else None


def _report(
    session: ClientSession, key: str, recorded: RecordedCall, outcome: OnceOutcome, result: Any
) -> Protocol[OnceAnswer]:
    """Record the outcome of an action that the caller holds."""
    if outcome == "unknown":
        yield from close_session(session, RunEnding("interrupted"))
        return OnceAnswer("unknown", key)
    error = ReportedError("it did not happen", not_done=True) if outcome == "not_done" else None
    report = BodyReport(None if error is not None else result, error)
    yield from report_outcome(session, _call_of({}), recorded.seq, report)
    yield from close_session(session, RunEnding("interrupted") if error is not None else RunEnding("finished", result))
    return OnceAnswer("not_done", key) if error is not None else OnceAnswer("done", key, result)


def _settle(
    engine: Engine, key: str, recorded: RecordedCall, outcome: OnceOutcome, result: Any, holder: OnceHolder
) -> Protocol[OnceAnswer]:
    """Settle an action whose holder is gone: whoever has checked says what happened."""
    if outcome == "unknown":
        return OnceAnswer("unknown", key)
    answer = RunAnswer("done", result) if outcome == "done" else RunAnswer("retry")
    yield Read(partial(give_answer, engine, PREFIX + key, answer, key=recorded.key, by=holder.label))
    if outcome == "not_done":
        return OnceAnswer("not_done", key)
    return (yield from _start(engine, key, "", None, holder))


def _call_of(arguments: dict[str, Any]) -> ClientCall:
    """Return the one effect of a key. Its id, not its arguments, identifies it."""
    return ClientCall(CALL, arguments, options=CallOptions(id="once", in_doubt="fail"))


def _look(engine: Engine, key: str) -> _KnownAction | None:
    store = engine.store
    if not key or len(key) > 200:
        raise WrongValue("key: give a text of 1 to 200 characters that names this one action")
    row = read_run(store, engine.name, PREFIX + key)
    if row is None:
        return None
    lease = lease_of(store.read("read_lease", (row.stream, store.clock.boot_ms()))[0], store.one_host)
    ledger = Ledger(events_of(store, row.stream, fork=row.is_fork))
    recorded = next(iter(ledger.by_intent.values()), None)
    if recorded is None:
        return _KnownAction(lease)
    given = objects.unpack(store, recorded.arguments)
    result = objects.unpack(store, recorded.result) if recorded.done else None
    answered = bool(store.read("get_answer", (row.stream, recorded.begun)))
    return _KnownAction(lease, recorded, given["action"], given["details"], result, answered)
