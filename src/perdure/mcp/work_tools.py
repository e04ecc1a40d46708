"""The tools of work: next_step, complete_step, update_progress, hand_off."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from perdure.api.aio.workflows import AsyncWorkflow
from perdure.errors import WorkflowNotFound
from perdure.kinds import Handoff
from perdure.mcp.tool import McpCaller, McpTool, ToolAnswer, ToolInput, to_plain
from perdure.presence.handoff.progress import KIND, validate_report

StepId = int | str


class NextStepInput(ToolInput, frozen=True):
    """Arguments of next_step."""

    plan: Annotated[str, Meta(description="The name of the plan, e.g. `migrate-to-postgres`", min_length=1)]
    steps: Annotated[
        list[str | dict[str, Any]] | None,
        Meta(
            description=(
                "To make the plan: its steps in order, as texts, or as objects with `step`, `action`, `args`, "
                "`depends_on`. The same steps again change nothing; others make a new version and keep what is done"
            )
        ),
    ] = None


class StepResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """A step of a plan."""

    step: StepId
    action: str
    status: str
    args: Any = None
    note: str = ""
    claimed_by: str = ""
    title: str = ""


class PlanResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """Result of next_step and complete_step."""

    plan: str
    status: str
    progress: int
    """In percent."""
    next: StepResult | None = None
    results: dict[str, Any] = {}
    """The results of completed steps."""


async def _next_step(caller: McpCaller, given: NextStepInput) -> ToolAnswer:
    workflows = caller.agent.workflows
    if given.steps is not None:
        return await _tell_next(await workflows.create(given.plan, given.steps))
    try:
        return await _tell_next(await workflows.get(given.plan))
    except WorkflowNotFound as error:
        hint = f"{error.hint}; to make it, call next_step with `steps`".removeprefix("; ")
        raise WorkflowNotFound(error.message, hint=hint) from error


async def _tell_next(flow: AsyncWorkflow, before: str = "") -> ToolAnswer:
    plan = await flow._read(lambda: flow._now)
    step = await flow.next_incomplete_step()
    results = {str(name): to_plain(result) for name, result in plan.results().items()}
    shown = None
    text = f"All {len(plan.steps)} steps of {plan.name!r} are done."
    if step is not None:
        shown = StepResult(step.step, step.action, str(step.status), to_plain(step.args), step.note)
        shown = msgspec.structs.replace(shown, claimed_by=step.claimed_by, title=step.title)
        text = f"Next in {plan.name!r} ({plan.progress} % done): step {step.step}: {step.title or step.action}."
        text += f" {step.claimed_by} is working on it." if step.claimed_by else ""
        text += f" It is {step.status}: {step.note}" if step.status in ("failed", "blocked") else ""
    result = PlanResult(plan.name, str(plan.status), plan.progress, shown, results)
    return ToolAnswer(f"{before}{text}", to_plain(result))


class CompleteStepInput(ToolInput, frozen=True):
    """Arguments of complete_step."""

    plan: Annotated[str, Meta(description="The name of the plan", min_length=1)]
    step: Annotated[StepId, Meta(description="The number or name of the step, as next_step gave it")]
    outcome: Annotated[
        Literal["done", "failed", "blocked", "skipped"],
        Meta(description="failed and blocked steps stay the next step; say why in `note`"),
    ] = "done"
    result: Annotated[Any, Meta(description="What later steps need from it")] = None
    note: Annotated[str | None, Meta(description="A remark for whoever continues")] = None


async def _complete_step(caller: McpCaller, given: CompleteStepInput) -> ToolAnswer:
    flow = await caller.agent.workflows.get(given.plan)
    if given.outcome == "done":
        await flow.complete(given.step, given.result, given.note)
    else:
        move = {"failed": flow.fail, "blocked": flow.block, "skipped": flow.skip}[given.outcome]
        await move(given.step, given.note, given.result)
    return await _tell_next(flow, f"Step {given.step} is {given.outcome}. ")


class ProgressInput(ToolInput, frozen=True):
    """Arguments of update_progress."""

    goal: Annotated[str | None, Meta(description="What you are to achieve")] = None
    done: Annotated[list[str] | None, Meta(description="What has been finished since the last report; added")] = None
    next_action: Annotated[str | None, Meta(description="The very next thing to do")] = None
    blockers: Annotated[list[str] | None, Meta(description="What is in the way now; replaces the earlier list")] = None
    context: Annotated[str | None, Meta(description="What whoever continues must know")] = None
    run: Annotated[str, Meta(description="The piece of work it is about; default: the agent as a whole")] = ""


class ProgressResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """Result of update_progress."""

    recorded: list[str]
    run: str = ""


async def _update_progress(caller: McpCaller, given: ProgressInput) -> ToolAnswer:
    said = validate_report(given.goal, given.done, given.blockers, given.next_action, given.context)
    await caller.agent.events.append(KIND, {**said, "run": given.run})
    return ToolAnswer(f"Recorded {', '.join(said)}.", to_plain(ProgressResult(list(said), given.run)))


class HandOffInput(ToolInput, frozen=True):
    """Arguments of hand_off."""

    summary: Annotated[str, Meta(description="Where the work stands, in a few sentences", min_length=1)]
    next_action: Annotated[str, Meta(description="The very next thing to do")] = ""
    decisions: Annotated[tuple[str, ...], Meta(description="What was decided, and why")] = ()
    open_questions: Annotated[tuple[str, ...], Meta(description="What is not known yet")] = ()
    files: Annotated[tuple[str, ...], Meta(description="Files that matter")] = ()
    to: Annotated[str, Meta(description="Who continues")] = "the next session"


class HandOffResult(msgspec.Struct, frozen=True):
    """Result of hand_off."""

    to: str
    brief: str
    """The open work of the agent, in Markdown."""


async def _hand_off(caller: McpCaller, given: HandOffInput) -> ToolAnswer:
    context = {
        "next_action": given.next_action,
        "decisions": "; ".join(given.decisions),
        "open_questions": "; ".join(given.open_questions),
        "files": ", ".join(given.files),
    }
    left = {name: text for name, text in context.items() if text}
    await caller.agent.events.append(Handoff(given.to, given.summary, left))
    brief = str(await caller.agent.handoff())
    text = f"Handed over to {given.to}: wake_up will show this note first."
    return ToolAnswer(text, to_plain(HandOffResult(given.to, brief)))


TOOLS = (
    McpTool(
        name="next_step",
        title="Next step of a plan",
        description=(
            "Return the first unfinished step of a durable plan. To make a plan, give its `steps`. Use it for work of "
            "more than a few steps: after a crash or in a new session, this tells where to go on."
        ),
        arguments=NextStepInput,
        result=PlanResult,
        handler=_next_step,
        idempotent=True,
    ),
    McpTool(
        name="complete_step",
        title="Complete a step",
        description=(
            "Record that a step of a plan is done, failed, blocked or skipped, with its result, and return the next "
            "step. Call it right after each step, not at the end."
        ),
        arguments=CompleteStepInput,
        result=PlanResult,
        handler=_complete_step,
        idempotent=True,
    ),
    McpTool(
        name="update_progress",
        title="Update progress",
        description=(
            "Report where you are: goal, what is done, the next action, blockers. People and later sessions read it. "
            "Fields that you leave out stay as they were; `done` is added to."
        ),
        arguments=ProgressInput,
        result=ProgressResult,
        handler=_update_progress,
    ),
    McpTool(
        name="hand_off",
        title="Hand over",
        description=(
            "Leave a note for whoever continues, before you stop, before your context is compacted, or when somebody "
            "else takes over. The next wake_up begins with it."
        ),
        arguments=HandOffInput,
        result=HandOffResult,
        handler=_hand_off,
    ),
)
