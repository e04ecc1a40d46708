"""The run protocol: an agent in any language has steps and effects, with the guarantees of one in Python."""

from __future__ import annotations

import secrets
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from perdure.data.events.schemas import kinds_of
from perdure.errors import ForeignError, RequestInvalid
from perdure.kernel.engine import Engine
from perdure.run.clients.calls import call_client_step, intend_effect, report_outcome
from perdure.run.clients.messages import (
    NOTHING,
    BodyReport,
    CallAnswer,
    CheckReport,
    ClientCall,
    ReportedError,
    ReportedEvent,
    ReportedWrites,
    ask_check,
)
from perdure.run.clients.recorded import list_calls
from perdure.run.clients.session import (
    ClientIdentity,
    ClientSession,
    RunEnding,
    close_session,
    open_session,
    renew,
)
from perdure.run.clients.waits import ask_person
from perdure.run.function import CallOptions
from perdure.run.item import scope_path
from perdure.run.wait import NO_DEFAULT
from perdure.server.access import Role
from perdure.server.calls import ApiCall
from perdure.server.routing import Route
from perdure.server.run_messages import (
    AskRequest,
    BodyError,
    CallList,
    CallReply,
    CallRequest,
    CallsQuery,
    CheckVerdict,
    ClosedRun,
    CloseRequest,
    ErrorReply,
    HeartbeatRequest,
    IntendRequest,
    LeaseReply,
    OpenedRun,
    OpenRequest,
    OutcomeRequest,
    StepRequest,
    WritesReply,
)
from perdure.server.run_sessions import drive_request
from perdure.server.values import from_json, to_json

RUN = "/v1/agents/{agent}/runs/{run}"
CALLS_MAX = 1000


async def open_run(call: ApiCall) -> OpenedRun:
    """Claim a run, or take it over when its holder's lease has run out."""
    body: OpenRequest = call.body
    engine = await _engine_of(call)
    identity = ClientIdentity(body.client, body.lease_ms)
    opening = open_session(engine, call.path["run"], from_json(body.input), identity, body.on_change)
    session = await drive_request(engine, opening)
    call.services.run_sessions.keep(session)
    run = session.run
    assert run is not None
    assert run.ledger.started is not None
    page = await _page(call, engine, str(session.identity), 0, body.calls)
    finished = run.ledger.finished
    return OpenedRun(
        session=str(session.identity),
        run=run.id,
        fence=session.identity.fence,
        resumed=run.resumed,
        finished=run.finished,
        input=to_json(await drive_request(engine, run.load(run.ledger.started.input))),
        result=to_json(await drive_request(engine, run.load(finished.result)))
        if finished and finished.result
        else None,
        lease_ms=body.lease_ms,
        heartbeat_ms=body.lease_ms // 3,
        recorded=sum(not one.blank for calls in run.ledger.calls.values() for one in calls),
        calls=page.calls,
        next=page.next,
    )


async def list_recorded(call: ApiCall) -> CallList:
    """Return recorded calls in the order of their entries."""
    query: CallsQuery = call.query
    return await _page(call, await _engine_of(call), query.session, query.after, query.limit)


async def _page(call: ApiCall, engine: Engine, session: str, after: int, limit: int) -> CallList:
    limit = max(0, min(limit, CALLS_MAX))
    found = await call.services.run_sessions.drive(
        engine, call.path["run"], session, lambda known: list_calls(known, after, limit + 1)
    )
    shown = [msgspec.structs.replace(one, result=to_json(one.result)) for one in found[:limit]]
    more = len(found) > limit
    return CallList(shown, (shown[-1].entry if shown else after) if more else None)


async def step(call: ApiCall) -> CallReply:
    """Return the recorded result of a step, or record one."""
    body: StepRequest = call.body
    engine = await _engine_of(call)
    options = _options(body, version=body.version)
    named = _call_of(body, options)
    report = _report_of(engine, body) if body.result is not UNSET or body.error is not None else None
    return await _answer(call, engine, body.session, lambda session: call_client_step(session, named, report))


async def intend(call: ApiCall) -> CallReply:
    """Commit the intent of an effect before its body starts, or return what is recorded about it."""
    body: IntendRequest = call.body
    options = _options(
        body,
        timeout=body.timeout,
        check=ask_check if body.check else None,
        in_doubt=body.in_doubt,
        on_change=body.on_change,
    )
    named, request = _call_of(body, options), call.request.headers.get("idempotency-key") or secrets.token_hex(16)
    checked = _verdict_of(body.checked)
    return await _answer(
        call,
        await _engine_of(call),
        body.session,
        lambda session: intend_effect(session, named, request, checked, body.passed),
    )


async def outcome(call: ApiCall) -> CallReply:
    """Record how the body of an effect has ended."""
    body: OutcomeRequest = call.body
    engine = await _engine_of(call)
    if body.result is UNSET and body.error is None:
        raise RequestInvalid("an outcome has a `result` or an `error`")
    check = ask_check if body.check else None
    options = CallOptions(retries=body.retries, backoff=body.backoff, check=check)
    named, report, checked = ClientCall(body.name, options=options), _report_of(engine, body), _verdict_of(body.checked)
    return await _answer(
        call, engine, body.session, lambda session: report_outcome(session, named, body.intent, report, checked)
    )


async def ask(call: ApiCall) -> CallReply:
    """Ask a person, durably and once."""
    body: AskRequest = call.body
    choices = None if body.choices is None else from_json(body.choices)
    default = NO_DEFAULT if body.default is UNSET else from_json(body.default)
    return await _answer(
        call,
        await _engine_of(call),
        body.session,
        lambda session: ask_person(session, body.kind, body.question, choices, body.timeout, default, body.id),
    )


async def heartbeat(call: ApiCall) -> LeaseReply:
    """Renew the lease of the client, and tell it to stop if somebody ordered so."""
    session: str = call.body.session
    order = await call.services.run_sessions.drive(await _engine_of(call), call.path["run"], session, renew)
    return LeaseReply(ClientIdentity.parse(session).lease_ms, order)


async def close_run(call: ApiCall) -> ClosedRun:
    """Record how the run ended, and release it."""
    body: CloseRequest = call.body
    result = NOTHING if body.result is UNSET else from_json(body.result)
    ending = RunEnding(body.how, result, _error_of(body.error), body.cause)
    status = await call.services.run_sessions.drive(
        await _engine_of(call), call.path["run"], body.session, lambda session: close_session(session, ending)
    )
    return ClosedRun(status)


async def _engine_of(call: ApiCall) -> Engine:
    return (await call.agent())._engine


async def _answer(call: ApiCall, engine: Engine, session: str, work: Any) -> CallReply:
    told: tuple[CallAnswer, ClientSession] = await call.services.run_sessions.drive(
        engine, call.path["run"], session, lambda known: _with_session(known, work)
    )
    answer, known = told
    return CallReply(
        status=answer.status,  # type: ignore[arg-type]
        result=to_json(answer.result),
        entry=answer.entry,
        key=answer.key,
        attempt=answer.attempt,
        after_ms=answer.after_ms if answer.status != "run" else 0,
        lease_ms=known.keeper.left_ms if answer.status == "run" else 0,
        ticket=answer.ticket,
        question=answer.question,
        error=_error_reply(answer.error) if answer.error is not None else None,
        writes=_writes_reply(answer.writes) if answer.writes is not None else None,
    )


def _with_session(session: ClientSession, work: Any) -> Any:
    answer = yield from work(session)
    return answer, session


def _options(body: CallRequest, **more: Any) -> CallOptions:
    was = None if body.was is None else tuple(body.was)
    return CallOptions(id=body.id, retries=body.retries, backoff=body.backoff, was=was, **more)


def _call_of(body: CallRequest, options: CallOptions) -> ClientCall:
    scope = scope_path([(name, from_json(key), nth) for name, key, nth in body.scope])
    return ClientCall(body.name, from_json(body.arguments), body.nth, scope, options)


def _report_of(engine: Engine, body: StepRequest | OutcomeRequest) -> BodyReport:
    made = body.writes
    events = [kinds_of(engine).convert_event(one.kind, from_json(one.payload)) for one in made.events]
    writes = ReportedWrites(
        from_json(made.state) if made.state else {},
        tuple(made.deleted),
        tuple(map(from_json, made.messages)),
        tuple(ReportedEvent(one.kind, one.value, one.version) for one in events),
        tuple(made.usage),
        NOTHING if made.result is UNSET else from_json(made.result),
    )
    result = None if isinstance(body.result, UnsetType) else from_json(body.result)
    return BodyReport(result, _error_of(body.error), writes, body.attempt)


def _error_of(error: BodyError | None) -> ReportedError | None:
    return ReportedError(error.message, error.type, error.not_done) if error is not None else None


def _verdict_of(verdict: CheckVerdict | None) -> CheckReport | None:
    return CheckReport(verdict.verdict, from_json(verdict.result), verdict.ticket) if verdict is not None else None


def _error_reply(error: BaseException) -> ErrorReply:
    kind = error.type_name if isinstance(error, ForeignError) else type(error).__name__
    return ErrorReply(kind, str(error))


def _writes_reply(writes: ReportedWrites) -> WritesReply:
    state = {key: to_json(value) for key, value in writes.state.items()}
    return WritesReply(state, list(writes.deleted), [to_json(message) for message in writes.messages])


def _post(verb: str, summary: str, handler: Any, request: type, response: type) -> Route:
    return Route(
        method="POST",
        path=f"{RUN}:{verb}",
        operation=f"{verb}_run",
        summary=summary,
        handler=handler,
        role=Role.WRITER,
        request=request,
        response=response,
        audited=verb == "open",
    )


ROUTES = (
    _post("open", "Open a run: get its lease and what is recorded.", open_run, OpenRequest, OpenedRun),
    _post("step", "Look a step up, or record its result.", step, StepRequest, CallReply),
    _post("intend", "Start an effect: commit its intent.", intend, IntendRequest, CallReply),
    _post("outcome", "Record the outcome of an effect.", outcome, OutcomeRequest, CallReply),
    _post("ask", "Ask a person, and poll for the answer.", ask, AskRequest, CallReply),
    _post("heartbeat", "Renew the lease of a run.", heartbeat, HeartbeatRequest, LeaseReply),
    _post("close", "Record the end of a run, and release it.", close_run, CloseRequest, ClosedRun),
    Route(
        method="GET",
        path=f"{RUN}/calls",
        operation="list_run_calls",
        summary="List the recorded calls of a run that this session holds.",
        handler=list_recorded,
        query=CallsQuery,
        response=CallList,
    ),
)
