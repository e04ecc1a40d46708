"""`/v1/agents/{agent}/workflows`: plans with a status for every step."""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.api.aio.workflows import AsyncWorkflow
from perdure.server.access import Role
from perdure.server.calls import ApiCall
from perdure.server.routing import Handler, Route
from perdure.server.values import from_json, to_json
from perdure.server.views import PageQuery, format_moment, take_page
from perdure.work.workflows.plan import WorkflowStep

PATH = "/v1/agents/{agent}/workflows"
STEP_PATH = f"{PATH}/{{workflow}}/steps/{{step}}"


class StepEntry(msgspec.Struct, frozen=True):
    """A step of a workflow."""

    step: int | str
    action: str
    args: Any
    depends_on: list[int | str]
    status: str
    result: Any
    note: str
    title: str
    claimed_by: str
    run: str
    changed_at: str | None


class WorkflowEntry(msgspec.Struct, frozen=True):
    """A workflow without its steps."""

    name: str
    version: int
    status: str
    progress: int


class WorkflowList(msgspec.Struct, frozen=True):
    """Workflows, sorted by name."""

    workflows: list[WorkflowEntry]
    next: str | None = None


class WorkflowDetails(msgspec.Struct, frozen=True):
    """A workflow with its steps."""

    name: str
    version: int
    status: str
    progress: int
    steps: list[StepEntry]


class NextStep(msgspec.Struct, frozen=True):
    """The next incomplete step; null when all are finished."""

    step: StepEntry | None


class NewStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A step of a new workflow."""

    step: int | str | None = None
    action: str | None = None
    args: Any = None
    depends_on: list[int | str] | None = None
    title: str | None = None
    note: str | None = None


class CreateWorkflow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A name and its steps: names of actions, or objects."""

    name: str
    steps: list[str | NewStep]


class MoveStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to record with the new status of a step."""

    result: Any = None
    note: str | None = None


def _entry(step: WorkflowStep) -> StepEntry:
    return StepEntry(
        step=step.step,
        action=step.action,
        args=to_json(step.args),
        depends_on=list(step.depends_on),
        status=step.status.value,
        result=to_json(step.result),
        note=step.note,
        title=step.title,
        claimed_by=step.claimed_by,
        run=step.run,
        changed_at=format_moment(step.changed_at),
    )


def _details(workflow: AsyncWorkflow) -> WorkflowDetails:
    steps = [_entry(step) for step in workflow.steps]
    return WorkflowDetails(workflow.name, workflow.version, workflow.status.value, workflow.progress, steps)


def _planned(step: str | NewStep) -> Any:
    if isinstance(step, str):
        return step
    given = {name: getattr(step, name) for name in step.__struct_fields__ if getattr(step, name) is not None}
    return {name: from_json(value) if name == "args" else value for name, value in given.items()}


def _step_ref(text: str) -> int | str:
    """A step is named by its number or its name."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else text


async def create_workflow(call: ApiCall) -> WorkflowDetails:
    """Create a workflow, or return the one with the same steps."""
    agent = await call.agent()
    return _details(await agent.workflows.create(call.body.name, [_planned(step) for step in call.body.steps]))


async def list_workflows(call: ApiCall) -> WorkflowList:
    """List workflows."""
    page, more = take_page(await (await call.agent()).workflows.list(), call.query, lambda one: one.name)
    return WorkflowList([WorkflowEntry(one.name, one.version, one.status.value, one.progress) for one in page], more)


async def get_workflow(call: ApiCall) -> WorkflowDetails:
    """Return a workflow with its steps."""
    return _details(await (await call.agent()).workflows.get(call.path["workflow"]))


async def get_next_step(call: ApiCall) -> NextStep:
    """Return the first unfinished step whose dependencies are finished."""
    workflow = await (await call.agent()).workflows.get(call.path["workflow"])
    found = await workflow.next_incomplete_step()
    return NextStep(None if found is None else _entry(found))


def _move(verb: str) -> Handler:
    async def move(call: ApiCall) -> StepEntry:
        workflow = await (await call.agent()).workflows.get(call.path["workflow"])
        step, wanted = _step_ref(call.path["step"]), call.body
        result = from_json(wanted.result)
        if verb == "start":
            return _entry(await workflow.start(step, wanted.note))
        if verb == "reset":
            return _entry(await workflow.reset(step, wanted.note))
        return _entry(await getattr(workflow, verb)(step, result=result, note=wanted.note))

    return move


_VERBS = {
    "start": "Claim a step for this server process.",
    "complete": "Complete a step with a result. It need not have been started.",
    "fail": "Mark a step as failed.",
    "block": "Block a step that waits for something outside.",
    "skip": "Skip a step that is not needed.",
    "reset": "Reset a step, so that it is executed from the beginning.",
}

ROUTES = (
    Route(
        method="GET",
        path=PATH,
        operation="list_workflows",
        summary="List workflows, sorted by name.",
        handler=list_workflows,
        query=PageQuery,
        response=WorkflowList,
    ),
    Route(
        method="POST",
        path=PATH,
        operation="create_workflow",
        summary="Create a workflow. With the same steps, the existing one is returned with its progress.",
        handler=create_workflow,
        role=Role.WRITER,
        recalls=True,
        request=CreateWorkflow,
        response=WorkflowDetails,
        status=201,
    ),
    Route(
        method="GET",
        path=f"{PATH}/{{workflow}}",
        operation="get_workflow",
        summary="Return a workflow with its steps.",
        handler=get_workflow,
        response=WorkflowDetails,
    ),
    Route(
        method="GET",
        path=f"{PATH}/{{workflow}}/next",
        operation="get_next_step",
        summary="Return the next incomplete step; null when all are finished.",
        handler=get_next_step,
        response=NextStep,
    ),
    *(
        Route(
            method="POST",
            path=f"{STEP_PATH}:{verb}",
            operation=f"{verb}_step",
            summary=summary,
            handler=_move(verb),
            role=Role.WRITER,
            recalls=True,
            request=MoveStep,
            response=StepEntry,
        )
        for verb, summary in _VERBS.items()
    ),
)
