"""The tools for actions that must happen once: begin_once, finish_once."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from perdure.kernel.protocol import drive_async
from perdure.mcp.once import OnceAnswer, OnceOutcome, begin, finish
from perdure.mcp.tool import McpCaller, McpTool, ToolAnswer, ToolInput, to_plain


class BeginOnceInput(ToolInput, frozen=True):
    """Arguments of begin_once."""

    key: Annotated[
        str,
        Meta(
            description="Names this one action, the same in every session: `deploy-1.4.2`, `invoice-17-reminder-1`",
            min_length=1,
            max_length=200,
        ),
    ]
    action: Annotated[str, Meta(description="What you are about to do, in one sentence")] = ""
    details: Annotated[Any, Meta(description="What helps to check later whether it happened: ids, addresses")] = None


class OnceResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """Result of begin_once and finish_once."""

    status: Annotated[str, Meta(description="go, done, in_progress, unknown or not_done")]
    key: str
    act: bool
    """Whether the caller may act now."""
    ticket: str = ""
    result: Any = None
    holder: str = ""
    action: str = ""
    details: Any = None


_TEXTS = {
    "done": "Do not act: this is already done.",
    "unknown": (
        "Do not act yet. Somebody began this{by} and is gone: it may or may not have happened. Check in the outside "
        "world first. Then call finish_once with outcome `done` and the result if it happened, or `not_done` if you "
        "are sure that it did not; after that begin_once lets you act."
    ),
    "not_done": "Recorded: it did not happen. Call begin_once again before you try it.",
}
_IN_PROGRESS = "Do not act: {holder} is doing this now. Ask again later, or leave it to them."
_MINE = (
    "You began this in this session and have not reported its outcome. If you did it, call finish_once with the "
    "result. If you are sure that you did not, call finish_once with outcome `not_done`."
)
_GO = "Go: act now, once. Then call finish_once with key {key!r}, this ticket and the result, whatever happened."


async def _begin(caller: McpCaller, given: BeginOnceInput) -> ToolAnswer:
    engine = caller.agent._engine
    known = await drive_async(engine.store, begin(engine, given.key, given.action, given.details, caller.holder))
    return _advise(known)


class FinishOnceInput(ToolInput, frozen=True):
    """Arguments of finish_once."""

    key: Annotated[str, Meta(description="The key that you gave to begin_once", min_length=1, max_length=200)]
    outcome: Annotated[
        OnceOutcome,
        Meta(description="done: it happened. not_done: certainly not. unknown: you cannot tell, even after checking"),
    ] = "done"
    result: Annotated[Any, Meta(description="What came of it: an id, a link, the output")] = None
    ticket: Annotated[str, Meta(description="The ticket that begin_once gave with `go`")] = ""


async def _finish(caller: McpCaller, given: FinishOnceInput) -> ToolAnswer:
    engine = caller.agent._engine
    work = finish(engine, given.key, given.outcome, given.result, caller.holder, given.ticket)
    known = await drive_async(engine.store, work)
    if known.status == "done":
        return _answer(known, f"Recorded as done: {to_plain(known.result)}")
    if known.status == "unknown":
        return _answer(known, "Recorded: its outcome is unknown.")
    return _advise(known)


def _advise(known: OnceAnswer) -> ToolAnswer:
    """Answer with what the caller must do now."""
    advice = _explain(known)
    text = f"{advice} Its result: {to_plain(known.result)}" if known.status == "done" else advice
    return _answer(known, text, advice)


def _answer(known: OnceAnswer, text: str, advice: str = "") -> ToolAnswer:
    result = OnceResult(
        known.status,
        known.key,
        known.status == "go",
        known.ticket,
        to_plain(known.result),
        known.holder,
        known.action,
        to_plain(known.details),
    )
    return ToolAnswer(text, to_plain(result), advice)


def _explain(known: OnceAnswer) -> str:
    if known.status == "go":
        return _GO.format(key=known.key)
    if known.status == "in_progress":
        return _MINE if known.mine else _IN_PROGRESS.format(holder=known.holder)
    by = f" ({known.action})" if known.action else ""
    return _TEXTS[known.status].format(by=by)


TOOLS = (
    McpTool(
        name="begin_once",
        title="Begin an action that must happen once",
        description=(
            "Call this before every action that must not happen twice: a payment, an e-mail, a deployment, a release, "
            "a deletion. It records the intent first. Act only if `act` is true. Otherwise it tells what is known: "
            "done with its result, in progress by somebody, or unknown, which you must check before anything else."
        ),
        arguments=BeginOnceInput,
        result=OnceResult,
        handler=_begin,
    ),
    McpTool(
        name="finish_once",
        title="Report the outcome of an action",
        description=(
            "Call this right after the action that begin_once allowed, with its result; or after checking an action "
            "whose outcome was unknown. The first report counts."
        ),
        arguments=FinishOnceInput,
        result=OnceResult,
        handler=_finish,
        idempotent=True,
    ),
)
