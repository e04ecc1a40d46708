"""`/v1/runs` and `/v1/agents/{agent}/runs`: inspect and control runs."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from perdure.run.listing import RunSummary, list_runs
from perdure.run.orders import RunOrder
from perdure.server.access import Role
from perdure.server.calls import ApiCall
from perdure.server.routing import Handler, Route
from perdure.server.run_cursor import make_run_cursor, read_run_cursor
from perdure.server.values import from_json, to_json
from perdure.server.views import PAGE, check_limit, format_ms, plain
from perdure.store.base import Store

PATH = "/v1/agents/{agent}/runs"
RUN_PATH = f"{PATH}/{{run}}"


class RunEntry(msgspec.Struct, frozen=True):
    """A run in a list."""

    id: str
    agent: str
    status: str
    started_at: str
    changed_at: str
    resumes: int
    error: str


class RunPage(msgspec.Struct, frozen=True):
    """Runs, most recently active first."""

    runs: list[RunEntry]
    next: str | None = None


class DoubtEntry(msgspec.Struct, frozen=True):
    """An effect whose outcome is unknown."""

    name: str
    key: str
    arguments: Any


class RunQuestion(msgspec.Struct, frozen=True):
    """An open question of a run."""

    kind: str
    text: str
    choices: Any


class RunDetails(msgspec.Struct, frozen=True):
    """A run and everything recorded about it."""

    id: str
    agent: str
    status: str
    started_at: str
    changed_at: str
    resumes: int
    error: str
    finished: bool
    input: Any
    result: Any
    state: Any
    messages: Any
    in_doubt: list[DoubtEntry]
    questions: list[RunQuestion]
    cost_usd: float | None
    entries: int


class RunListQuery(msgspec.Struct, frozen=True):
    """Which runs to list."""

    status: str | None = None
    cursor: str | None = None
    limit: int = PAGE


class OrderRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why."""

    reason: str = ""


class RunOrderEntry(msgspec.Struct, frozen=True):
    """An order to a run, and whether it has been obeyed."""

    run: str
    order: str
    obeyed: bool
    reason: str
    by: str


class ForkRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where to fork, and what differs."""

    at: int | str | None = None
    to: str | None = None
    override: dict[str, Any] | None = None


class ForkedRun(msgspec.Struct, frozen=True):
    """The new run."""

    id: str
    origin: str
    at: int
    in_doubt: list[str]
    stays: list[Any]


class UndoSteps(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many steps to undo."""

    steps: int = 1
    effects: str = "keep"


class UndoneSteps(msgspec.Struct, frozen=True):
    """What was undone."""

    steps: int
    to: int
    kept: list[str]


class SendEvent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An event for a run that waits for it, now or later."""

    name: str
    payload: Any = None


class Accepted(msgspec.Struct, frozen=True):
    """The request was carried out."""

    ok: bool = True


def _entry(run: RunSummary) -> RunEntry:
    return RunEntry(
        run.id,
        run.agent,
        run.status.value,
        format_ms(run.started_at),
        format_ms(run.changed_at),
        run.resumes,
        run.error,
    )


async def _list(call: ApiCall, store: Store, agent: str | None) -> RunPage:
    """Read one page, and one run more to know whether there is another page."""
    query, limit = call.query, check_limit(call.query.limit)
    runs = await asyncio.to_thread(
        list_runs, store, agent, query.status, limit=limit + 1, after=read_run_cursor(query.cursor)
    )
    more = make_run_cursor(runs[limit - 1].place) if len(runs) > limit else None
    return RunPage([_entry(run) for run in runs[:limit]], more)


async def list_all_runs(call: ApiCall) -> RunPage:
    """List the runs of all agents that the key may see."""
    return await _list(call, await call.services.tenants.store(call.principal), call.principal.agent)


async def list_agent_runs(call: ApiCall) -> RunPage:
    """List the runs of one agent."""
    agent = await call.agent()
    return await _list(call, agent._engine.store, agent.name)


async def get_run(call: ApiCall) -> RunDetails:
    """Return a run in full."""
    info = await (await call.agent()).runs.get(call.path["run"])
    return RunDetails(
        **msgspec.structs.asdict(_entry(info.summary)),
        finished=info.finished,
        input=to_json(info.input),
        result=to_json(info.result),
        state=to_json(info.state),
        messages=to_json(info.messages),
        in_doubt=[DoubtEntry(one.name, one.key, to_json(one.arguments)) for one in info.in_doubt],
        questions=[RunQuestion(one.kind, one.text, to_json(one.choices)) for one in info.questions],
        cost_usd=info.usage.cost_usd,
        entries=len(info.events),
    )


def _order(verb: str) -> Handler:
    async def order(call: ApiCall) -> RunOrderEntry:
        runs = (await call.agent()).runs
        given: RunOrder = await getattr(runs, verb)(call.path["run"], call.body.reason, by=call.principal.key_id)
        return RunOrderEntry(given.run, given.order, given.obeyed, given.reason, given.by)

    return order


async def fork_run(call: ApiCall) -> ForkedRun:
    """Create a run that shares the beginning of another one."""
    wanted = call.body
    override = None if wanted.override is None else {name: from_json(item) for name, item in wanted.override.items()}
    fork = await (await call.agent()).runs.fork(call.path["run"], at=wanted.at, to=wanted.to, override=override)
    return ForkedRun(fork.id, fork.origin, fork.at, list(fork.in_doubt), plain(fork.stays))


async def undo_run(call: ApiCall) -> UndoneSteps:
    """Undo the last steps of a run that is not open."""
    runs = (await call.agent()).runs
    undone = await runs.undo(call.path["run"], call.body.steps, effects=call.body.effects, by=call.principal.key_id)
    return UndoneSteps(undone.steps, undone.to, list(undone.kept))


async def retry_run(call: ApiCall) -> Accepted:
    """Queue a dead run again."""
    await (await call.agent()).runs.retry(call.path["run"], by=call.principal.key_id)
    return Accepted()


async def send_event(call: ApiCall) -> Accepted:
    """Send an event to a run."""
    agent, wanted = await call.agent(), call.body
    await agent.send_event(call.path["run"], wanted.name, from_json(wanted.payload), by=call.principal.key_id)
    return Accepted()


_ORDERS = {
    "cancel": "Cancel a run and its child runs for good.",
    "pause": "Pause a run until it is resumed.",
    "resume": "Allow a paused run to be opened again.",
}

ROUTES = (
    Route(
        method="GET",
        path="/v1/runs",
        operation="list_runs",
        summary="List the runs of all agents that the key may see, most recently active first.",
        handler=list_all_runs,
        query=RunListQuery,
        response=RunPage,
    ),
    Route(
        method="GET",
        path=PATH,
        operation="list_agent_runs",
        summary="List the runs of an agent, most recently active first.",
        handler=list_agent_runs,
        query=RunListQuery,
        response=RunPage,
    ),
    Route(
        method="GET",
        path=RUN_PATH,
        operation="get_run",
        summary="Return a run in full: status, input, result, state, messages, open questions.",
        handler=get_run,
        response=RunDetails,
    ),
    *(
        Route(
            method="POST",
            path=f"{RUN_PATH}:{verb}",
            operation=f"{verb}_run",
            summary=summary,
            handler=_order(verb),
            role=Role.WRITER,
            request=OrderRun,
            response=RunOrderEntry,
        )
        for verb, summary in _ORDERS.items()
    ),
    Route(
        method="POST",
        path=f"{RUN_PATH}:fork",
        operation="fork_run",
        summary="Create a run that shares the beginning of another one.",
        handler=fork_run,
        role=Role.WRITER,
        request=ForkRun,
        response=ForkedRun,
        status=201,
    ),
    Route(
        method="POST",
        path=f"{RUN_PATH}:undo",
        operation="undo_run",
        summary="Undo the last steps of a run that is not open.",
        handler=undo_run,
        role=Role.WRITER,
        request=UndoSteps,
        response=UndoneSteps,
    ),
    Route(
        method="POST",
        path=f"{RUN_PATH}:retry",
        operation="retry_run",
        summary="Queue a dead run again. Its finished steps are kept.",
        handler=retry_run,
        role=Role.WRITER,
        request=OrderRun,
        response=Accepted,
    ),
    Route(
        method="POST",
        path=f"{RUN_PATH}:send",
        operation="send_event",
        summary="Send an event to a run that waits for it, now or later.",
        handler=send_event,
        role=Role.WRITER,
        recalls=True,
        request=SendEvent,
        response=Accepted,
    ),
)
