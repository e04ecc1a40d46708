"""Refuses writes for an agent that has left its store.

Leaving takes over every stream of the agent, so the fencing token refuses all open writers. A transaction that takes
or creates a stream checks for a departure here, under a lock that leaving takes too.
"""

from __future__ import annotations

from perdure import records as r
from perdure.errors import AgentMoved, AgentProblem, AgentRetired
from perdure.store.base import Rows, Script, Statement, Store
from perdure.values.clock import moment_text


def departure(agent: str) -> Statement:
    """The query for an agent's departure; pass its rows to `refuse_departed`."""
    return Statement("departure_of", (agent,))


def refuse_departed(agent: str, rows: Rows) -> None:
    """Raise AgentMoved or AgentRetired if the rows of `departure` say that the agent has left."""
    for kind, at, body in rows:
        left = r.decode(kind, body)
        assert isinstance(left, r.AgentLeft), "what a departure refers to"
        raise _refusal(agent, at, left)


def _refusal(agent: str, at: int, left: r.AgentLeft) -> AgentProblem:
    by, reason = f" by {left.by}" if left.by else "", f": {left.reason}" if left.reason else ""
    if left.how == "retired":
        return AgentRetired(f"agent {agent!r} was retired on {moment_text(at)}{by}{reason}")
    if left.store:
        went = f"it went into {left.to}, and on {moment_text(at)} into {left.url}{by}"
    else:
        went = f"it went into {left.to} on {moment_text(at)}{by}, and goes on where that file was imported"
    return AgentMoved(f"agent {agent!r} has moved: {went}")


def describe_departure(store: Store, agent: str) -> str:
    """Describe for people how an agent left the store; empty if it has not."""
    for kind, at, body in store.read("departure_of", (agent,)):
        left = r.decode(kind, body)
        assert isinstance(left, r.AgentLeft), "what a departure refers to"
        return _refusal(agent, at, left).message
    return ""


def check_not_departed(agent: str) -> Script[None]:
    """Part of a script: refuse an agent that has left."""
    [rows] = yield [departure(agent)]
    refuse_departed(agent, rows)


def lock_not_departed(owner: int) -> Script[None]:
    """Lock an agent and refuse it if it has left; for writes from the stream of another agent, which is not fenced."""
    [rows] = yield [Statement("hold_agent", (owner,))]
    for (name,) in rows:
        yield from check_not_departed(name)


def refuse_if_gone(store: Store, agent: str) -> None:
    """Refuse an agent that has left, outside a transaction, before any work is done."""
    refuse_departed(agent, store.read("departure_of", (agent,)))
