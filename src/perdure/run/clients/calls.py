"""Steps and effects of a client. The protocols are those of `run/step.py` and `run/effect.py`.

They yield `Invoke` where a body or a check runs. Here a request of the client answers it, or the protocol is left at
that point: the client is told what to execute, and its next request finds the same point again from the journal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from perdure import records as r
from perdure.errors import Diverged, InDoubt, LeaseLost, ReplayUnknown, RunWaiting, WrongValue
from perdure.journal import objects
from perdure.journal.append import Append
from perdure.kernel.protocol import Invoke, Pause, Protocol, ProtocolOutcome, Read, Submit
from perdure.kernel.scope import FRAME, Frame
from perdure.platform.process import boot_id
from perdure.run import usage
from perdure.run.clients.messages import (
    NOTHING,
    BodyReport,
    CallAnswer,
    CheckReport,
    ClientCall,
    ReportedWrites,
    ask_check,
)
from perdure.run.clients.session import ClientRun, ClientSession, current_run
from perdure.run.effect import call_effect, execute_body
from perdure.run.ledger import RecordedCall
from perdure.run.outcome import EffectCall
from perdure.run.step import call_step, rebuild_failure
from perdure.run.writes import append, set_result, write
from perdure.store.rows import read_entry
from perdure.values.limits import CLIENT_LOOK_SECONDS, RETRY_BACKOFF_SECONDS_MAX


class _BodyWanted(BaseException):
    """Leaves a protocol where the client must execute the body."""


class _CheckWanted(BaseException):
    """Leaves a protocol where the client must execute the check."""


class _Later(BaseException):
    """Leaves a protocol where it would sleep before the next attempt."""


def call_client_step(
    session: ClientSession, call: ClientCall, report: BodyReport | None = None
) -> Protocol[CallAnswer]:
    """Look a step up, or record how its body has ended. The first report counts."""
    run = yield from current_run(session)
    function = call.function(effect=False)
    frame, ident = _frame_of(run, call, function.ident(call.arguments, call.options))
    recorded = run.ledger.find(call.scope, call.name, ident, call.nth)
    if recorded is not None and _has_failed_here(run, recorded):
        return CallAnswer("failed", entry=recorded.failed, error=rebuild_failure(run, recorded))
    if recorded is not None and _is_repeated(recorded, report):
        return _later(run, recorded.next_at)
    writes = recorded.writes if recorded is not None else ()
    relay = _Relay(run, report)
    ended = yield from relay.drive(call_step(frame, function, call.options, (), call.arguments))
    if ended.error is not None:
        return _tell_stop(session, run, relay, recorded, ended.error)
    if relay.done is not None:
        run.ledger.add_entries([relay.done])
        recorded = run.ledger.find(call.scope, call.name, ident, call.nth)
    assert recorded is not None
    recorded.consumed, recorded.writes = True, recorded.writes or writes
    told = (yield from _read_writes(run, recorded.writes)) if report is None else None
    return CallAnswer("done", ended.value, recorded.seq, writes=told)


def intend_effect(
    session: ClientSession,
    call: ClientCall,
    request: str,
    checked: CheckReport | None = None,
    passed: Sequence[int] | None = None,
) -> Protocol[CallAnswer]:
    """Commit the intent of an effect, settle one in doubt, or return the recorded outcome."""
    run = yield from current_run(session)
    session.mark_passed(passed or ())
    function = call.function(effect=True)
    frame, ident = _frame_of(run, call, function.ident(call.arguments, call.options))
    recorded = run.ledger.find(call.scope, call.name, ident, call.nth)
    if recorded is not None and recorded.running and not recorded.done:
        return (yield from _tell_again(run, recorded, request))
    writes = recorded.writes if recorded is not None else ()
    run.request, run.asked_at = request, _asked_at(run, checked)
    relay = _Relay(run, None, checked if run.asked_at else None)
    effect = EffectCall(run, frame, function, call.options, (), call.arguments)
    ended = yield from relay.drive(call_effect(effect))
    recorded = run.ledger.find(call.scope, call.name, ident, call.nth)
    unreached = run.ledger.find_unconsumed_effect(call.scope, call.name) is not None
    if isinstance(ended.error, Diverged) and passed is None and unreached:
        raise ReplayUnknown(f"{ReplayUnknown.__doc__}: {ended.error.message}")
    if ended.error is not None:
        return _tell_stop(session, run, relay, recorded, ended.error)
    assert recorded is not None
    session.mark_passed([recorded.seq])
    recorded.writes = writes
    told = yield from _read_writes(run, writes)
    return CallAnswer("done", ended.value, recorded.seq, key=recorded.key, writes=told)


def report_outcome(
    session: ClientSession, call: ClientCall, intent: int, report: BodyReport, checked: CheckReport | None = None
) -> Protocol[CallAnswer]:
    """Record how the body of an effect has ended. The first report counts."""
    run = yield from current_run(session)
    recorded = run.ledger.by_intent.get(intent)
    if recorded is None or recorded.name != call.name:
        raise WrongValue(f"intent={intent}: run {run.id!r} has no such intent of {call.name}")
    if recorded.done:
        return CallAnswer("done", (yield Read(objects.unpack, (run.store, recorded.result))), recorded.seq)
    if recorded.failed:
        return CallAnswer("failed", entry=recorded.failed, error=rebuild_failure(run, recorded))
    if _is_repeated(recorded, report):
        return _later(run, recorded.next_at)
    if not recorded.running:
        raise _not_started_error(run, recorded)
    call = msgspec.structs.replace(call, scope=recorded.path)
    frame = Frame(run, recorded.path, run.root, "", None)
    nth = run.ledger.calls[recorded.path, recorded.name, recorded.ident].index(recorded)
    identity = recorded.origin or r.CallIdentity(recorded.path, recorded.name, recorded.ident, nth)
    effect = EffectCall(run, frame, call.function(effect=True), call.options, (), {})
    relay = _Relay(run, report, checked)
    ended = yield from relay.drive(execute_body(effect, identity, recorded))
    if ended.error is not None:
        return _tell_stop(session, run, relay, recorded, ended.error)
    return CallAnswer("done", ended.value, recorded.seq)


class _Relay:
    """Drives the protocol of a call, and answers for the body and the check what the client has reported."""

    def __init__(self, run: ClientRun, report: BodyReport | None, checked: CheckReport | None = None) -> None:
        self._run = run
        self._report = report
        self._checked = checked
        self.done: r.JournalEntry | None = None
        """The end of a step, once it is committed: the ledger does not know it yet."""
        self.retry: r.AttemptFailed | None = None
        """The attempt that has failed. The client asks for the next one with another request."""

    def drive(self, protocol: Protocol[Any]) -> Protocol[ProtocolOutcome]:
        """Execute a protocol up to its end, or to where the client is needed. Returns its result or what it raised."""
        try:
            request = next(protocol)
            while True:
                try:
                    if isinstance(request, Pause) or self.retry is not None:
                        raise _Later
                    if isinstance(request, Invoke):
                        answer = yield from self._answer(request)
                    else:
                        answer = yield request
                        self._note(request, answer)
                except BaseException as error:
                    request = protocol.throw(error)
                else:
                    request = protocol.send(answer)
        except StopIteration as stop:
            return ProtocolOutcome(stop.value)
        except BaseException as error:
            return ProtocolOutcome(error=error)

    def _answer(self, request: Invoke) -> Protocol[Any]:
        if request.call is ask_check:
            if self._checked is None:
                raise _CheckWanted
            return self._checked.answer()
        report, self._report = self._report, None
        if report is None:
            raise _BodyWanted
        token = FRAME.set(request.frame)
        try:
            yield from _write(self._run, report.writes, lands=report.error is None)
        finally:
            FRAME.reset(token)
        if report.error is not None:
            raise report.error.make()
        return report.result

    def _note(self, request: Any, answer: Any) -> None:
        if isinstance(request, Submit) and type(request.unit) is Append:
            [*_, record] = [None, *request.unit.records]
            if isinstance(record, r.StepDone):
                self.done = r.JournalEntry(answer, 0, record)
            elif isinstance(record, r.AttemptFailed):
                self.retry = record


def _write(run: ClientRun, writes: ReportedWrites, *, lands: bool) -> Protocol[None]:
    """Make the writes of a body in its frame. Of one that failed, only the cost counts."""
    for one in writes.usage:
        tokens = (one.input_tokens, one.output_tokens, one.cached_input_tokens, one.cache_write_tokens)
        cost = None if one.cost_usd is None else usage.dollars("cost_usd", one.cost_usd)
        yield from usage.record(run, usage.check_report(one.model, one.provider, *tokens), cost)
    if not lands:
        return
    for key, value in writes.state.items():
        yield from write(run, r.WriteOp.SET, key, value, f"state[{key!r}]")
    for key in writes.deleted:
        yield from write(run, r.WriteOp.DELETE, key, None, f"state[{key!r}]")
    for message in writes.messages:
        yield from append(run, message, False)
    for event in writes.events:
        yield from write(run, r.WriteOp.EVENT, event.kind, event.payload, f"event {event.kind}", event.version)
    if writes.result is not NOTHING:
        set_result(run, writes.result)


def _read_writes(run: ClientRun, writes: Sequence[r.RunWrite]) -> Protocol[ReportedWrites | None]:
    """Return what a recorded body wrote to state and messages, for the client's own copy of them."""
    if not writes:
        return None
    state, messages = dict[str, Any](), list[Any]()
    for one in writes:
        if one.op == r.WriteOp.SET:
            state[one.key] = yield from run.load(one.value)
        elif one.op == r.WriteOp.MESSAGE:
            messages.append((yield from run.load(one.value)))
    deleted = tuple(one.key for one in writes if one.op == r.WriteOp.DELETE)
    return ReportedWrites(state, deleted, tuple(messages))


def _frame_of(run: ClientRun, call: ClientCall, ident: bytes) -> tuple[Frame, bytes]:
    """Return the frame of a call. It counts the call as the client does."""
    frame = Frame(run, call.scope, run.root, "", None)
    frame.counts[call.name, ident] = call.check_number(run.ledger, ident)
    return frame, ident


def _has_failed_here(run: ClientRun, recorded: RecordedCall) -> bool:
    """Whether a step has failed since the run was opened: then this request is a repeated one."""
    opened = run.ledger.opened_at[-1] if run.ledger.opened_at else 0
    return not recorded.done and recorded.failed > opened


def _is_repeated(recorded: RecordedCall, report: BodyReport | None) -> bool:
    """Whether the failure of this attempt is recorded already."""
    return report is not None and report.error is not None and 0 < report.attempt <= recorded.attempts


def _not_started_error(run: ClientRun, recorded: RecordedCall) -> Exception:
    if recorded.doubted and recorded.fence == run.head.fence:
        return InDoubt(f"the outcome of {recorded.name} is unknown (key {recorded.key})", hint=run.hint_of(InDoubt))
    return LeaseLost(f"this session has not started {recorded.name} (entry {recorded.seq})")


def _asked_at(run: ClientRun, checked: CheckReport | None) -> int:
    """Return when the client was told to check; 0 if this host cannot know, and the check must be asked again."""
    boot, _, at = (checked.ticket if checked is not None else "").partition(":")
    return min(int(at), run.clock.boot_ms()) if boot == boot_id() and at.isascii() and at.isdigit() else 0


def _tell_again(run: ClientRun, recorded: RecordedCall, request: str) -> Protocol[CallAnswer]:
    """Answer a repeated request to start an effect. Another request for the same call is refused."""
    entry = yield Read(read_entry, (run.store, run.head.stream, recorded.begun))
    record = r.decode(entry.kind, entry.body) if entry is not None and entry.body is not None else None
    if isinstance(record, r.EffectIntended) and record.key == run.key_of(request):
        return (yield from _tell_run(run, recorded))
    if isinstance(record, r.EffectAgain) and record.request == request:
        return (yield from _tell_run(run, recorded))
    raise Diverged(
        f"{recorded.name} (entry {recorded.seq}) has started in this session and has no outcome",
        hint="report its outcome, or number calls with the same arguments: `nth`",
    )


def _tell_run(run: ClientRun, recorded: RecordedCall) -> Protocol[CallAnswer]:
    if not run.holds_lease:
        yield from run.check_lease()
    return _run_answer(run, recorded)


def _run_answer(run: ClientRun, recorded: RecordedCall) -> CallAnswer:
    return CallAnswer(
        "run", entry=recorded.seq, key=recorded.key, attempt=recorded.attempts + 1, after_ms=run.lease_keeper.left_ms
    )


def _later(run: ClientRun, at: int) -> CallAnswer:
    wait_ms = min(at - run.clock.wall_ms(), int(RETRY_BACKOFF_SECONDS_MAX * 1000))
    return CallAnswer("later", after_ms=max(0, wait_ms))


def _tell_stop(
    session: ClientSession, run: ClientRun, relay: _Relay, recorded: RecordedCall | None, left: BaseException
) -> CallAnswer:
    """Tell the client what to do where a protocol was left. Errors that are not its own are raised."""
    if isinstance(left, _BodyWanted):
        if recorded is None or not recorded.effect:
            return CallAnswer("run", attempt=(recorded.attempts if recorded is not None else 0) + 1)
        recorded.running = True
        session.mark_passed([recorded.seq])
        return _run_answer(run, recorded)
    if isinstance(left, _CheckWanted) and recorded is not None:
        ticket = f"{boot_id()}:{run.clock.boot_ms()}"
        return CallAnswer("check", entry=recorded.seq, key=recorded.key, ticket=ticket)
    session.forget()
    if isinstance(left, _Later):
        return _later(run, relay.retry.next_at if relay.retry is not None else recorded.next_at if recorded else 0)
    if isinstance(left, RunWaiting) and recorded is not None:
        look_ms = int(CLIENT_LOOK_SECONDS * 1000)
        return CallAnswer("waiting", entry=recorded.seq, key=recorded.key, question=left.message, after_ms=look_ms)
    stream, entry = getattr(left, "_perdure_failure", (0, 0))
    if stream == run.head.stream and isinstance(left, Exception):
        return CallAnswer("failed", entry=entry, error=left)
    raise left
