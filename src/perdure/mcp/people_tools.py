"""The tools for questions to people: ask_human, check_answer."""

from __future__ import annotations

import shlex
from hashlib import blake2b
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from perdure.errors import InputChanged, RunBusy, RunNotFound, RunWaiting
from perdure.mcp.tool import McpCaller, McpTool, ToolAnswer, ToolInput, to_plain

PREFIX = "ask:"
"""Before the id of a question in the id of its run."""

QuestionKind = Literal["ask", "approve"]


class AskInput(ToolInput, frozen=True):
    """Arguments of ask_human."""

    question: Annotated[str, Meta(description="The whole question: the person does not see this session", min_length=1)]
    choices: Annotated[list[str] | None, Meta(description="The allowed answers, if they are limited")] = None
    kind: Annotated[QuestionKind, Meta(description="`approve` is answered with yes or no")] = "ask"
    id: Annotated[
        str | None, Meta(description="Names the question. Default: made from its text, so that it is asked once")
    ] = None


class QuestionResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """Result of ask_human and check_answer."""

    id: str
    status: Literal["waiting", "answered"]
    question: str
    answer: Any = None


async def _ask(caller: McpCaller, given: AskInput) -> ToolAnswer:
    made = blake2b(msgspec.json.encode([given.kind, given.question, given.choices]), digest_size=6).hexdigest()
    asked = {"question": given.question, "choices": given.choices, "kind": given.kind}
    try:
        return await _look(caller, given.id or made, asked)
    except InputChanged as error:
        raise InputChanged(
            f"the question {given.id!r} was asked with other words; nothing was changed", hint="give another `id`"
        ) from error


class CheckAnswerInput(ToolInput, frozen=True):
    """Arguments of check_answer."""

    id: Annotated[str, Meta(description="The id that ask_human returned", min_length=1)]


async def _check(caller: McpCaller, given: CheckAnswerInput) -> ToolAnswer:
    try:
        info = await caller.agent.runs.get(PREFIX + given.id)
    except RunNotFound as error:
        raise RunNotFound(f"there is no question {given.id!r}", hint="ask_human returns the id") from error
    return await _look(caller, given.id, info.input)


async def _look(caller: McpCaller, id: str, asked: dict[str, Any]) -> ToolAnswer:
    """Ask durably and once, and return the answer if there is one."""
    run_id, question = PREFIX + id, asked["question"]
    try:
        async with caller.agent.run(run_id, input=asked, wait=0) as run:
            if run.finished:
                answer = run.result
            elif asked["kind"] == "approve":
                answer = run.result = await run.approve(question)
            else:
                answer = run.result = await run.ask(question, choices=asked["choices"])
    except (RunWaiting, RunBusy):  # busy: another session looks at the same moment
        how = f"perdure answer {shlex.quote(run_id)} ANSWER{caller.options}"
        text = f"Not answered yet. Go on with other work and call check_answer({id!r}) later. A person answers: {how}"
        return ToolAnswer(text, to_plain(QuestionResult(id, "waiting", question)), text)
    shown = to_plain(answer)
    return ToolAnswer(f"Answered: {shown}", to_plain(QuestionResult(id, "answered", question, shown)))


TOOLS = (
    McpTool(
        name="ask_human",
        title="Ask a person",
        description=(
            "Ask the user or a colleague something that only a person can decide. The question is durable: it survives "
            "this session, and it reaches people who are not here. Returns at once; check_answer returns the answer. "
            "The same question asked again is the same question."
        ),
        arguments=AskInput,
        result=QuestionResult,
        handler=_ask,
        idempotent=True,
    ),
    McpTool(
        name="check_answer",
        title="Check for an answer",
        description="Return the answer to a question of ask_human, or that there is none yet. Do not wait in a loop.",
        arguments=CheckAnswerInput,
        result=QuestionResult,
        handler=_check,
        idempotent=True,
    ),
)
