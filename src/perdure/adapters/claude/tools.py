"""`durable(tool)`: a tool of the Claude Agent SDK whose calls are effects of the session's turn."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

from claude_agent_sdk import SdkMcpTool

from perdure.adapters.call_policy import AdapterCall, CallPolicy, EffectGivenUp
from perdure.adapters.claude.session_store import ClaudeTurns, PerdureSessionStore
from perdure.errors import NotDone, WrongType


def durable(
    tool: SdkMcpTool[Any],
    *,
    session: PerdureSessionStore | ClaudeTurns | str,
    check: Callable[..., Any] | None = None,
    in_doubt: str = "ask",
    not_done: tuple[type[BaseException], ...] = (),
    step: bool = False,
) -> SdkMcpTool[Any]:
    """Return a tool whose calls are recorded: none is silently repeated, and a repeated one gets the first result.

    - `session` is the session store, or `store.session(id)` if the program has several sessions at a time. A text is
      the id of a session in the default store.
    - `check(**arguments, key=...)` finds out whether a call happened: `Done(result)`, `NotDone` or `Unknown`.
    - `in_doubt` says what to do when the outcome is unknown: "ask" a person, "retry" with the same key, or "fail".
    - `not_done` lists exceptions that mean nothing happened.
    - `step=True` marks a tool that is safe to repeat: it is recorded and never in doubt.

    The SDK gives tools no id of the call, so equal calls in one turn are told apart by their order.
    """
    if not isinstance(tool, SdkMcpTool):
        raise WrongType(f"durable() needs a tool made with @tool, not {tool!r}")
    policy = CallPolicy(not step, check, in_doubt, not_done)
    policy.options(None)  # report a mistake here, not at the first call
    turns = _turns_of(session)
    nothing_happened: tuple[type[BaseException], ...] = (NotDone, *not_done)

    async def handler(arguments: Any) -> dict[str, Any]:
        async def body(_: dict[str, Any], key: str) -> Any:
            return await tool.handler(arguments)

        try:
            return _to_content(await turns.calls.execute_async(AdapterCall(tool.name, dict(arguments), policy), body))
        except EffectGivenUp as error:
            return {**_to_content(error.tell_model(tool.name)), "is_error": True}
        except nothing_happened as error:
            return {**_to_content(str(error)), "is_error": True}

    return dataclasses.replace(tool, handler=handler)


def _turns_of(session: PerdureSessionStore | ClaudeTurns | str) -> ClaudeTurns:
    if isinstance(session, str):
        return PerdureSessionStore().session(session)
    return session.session() if isinstance(session, PerdureSessionStore) else session


def _to_content(result: Any) -> dict[str, Any]:
    """Return a result in the form of the SDK. A check or a person may answer with a plain value."""
    if isinstance(result, dict) and "content" in result:
        return result
    text = result if isinstance(result, str) else json.dumps(result, default=str)
    return {"content": [{"type": "text", "text": text}]}
