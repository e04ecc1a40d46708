"""Questions of a client. It asks again from time to time until there is an answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.errors import RunWaiting, WrongValue
from perdure.kernel.protocol import Protocol
from perdure.kernel.scope import FRAME, Frame
from perdure.run import wait
from perdure.run.clients.messages import CallAnswer
from perdure.run.clients.session import ClientSession, current_run
from perdure.run.wait import NO_DEFAULT
from perdure.values.durations import Duration
from perdure.values.limits import CLIENT_LOOK_SECONDS


def ask_person(
    session: ClientSession,
    kind: str,
    question: str,
    choices: Sequence[Any] | None = None,
    timeout: Duration | None = None,
    default: Any = NO_DEFAULT,
    id: str | None = None,
) -> Protocol[CallAnswer]:
    """Ask a question once, durably, and return the answer if there is one. Its text or its id identifies it."""
    run = yield from current_run(session)
    token = FRAME.set(Frame(run, "", run.root, "", None))
    try:
        if kind == "approve":
            answer = yield from wait.approve(run, question, timeout, default, id)
        elif kind == "ask":
            answer = yield from wait.ask(run, question, choices, None, timeout, default, id)
        else:
            raise WrongValue(f"kind={kind!r}: must be 'ask' or 'approve'")
    except RunWaiting:
        return CallAnswer("waiting", question=question, after_ms=int(CLIENT_LOOK_SECONDS * 1000))
    finally:
        FRAME.reset(token)
    return CallAnswer("done", answer)
