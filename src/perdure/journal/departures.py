"""An agent that has left its store: how that is known, and where it is asked.

Leaving takes the fence of every stream of the agent: whoever writes to one is refused by the very statement that would
append. What is left are those who would take a stream, or make a new one: each asks here, in the same transaction, and
behind the lock of what it takes or makes, which leaving waits for too.
"""

from __future__ import annotations

from .. import records as r
from ..clock import moment_text
from ..errors import AgentMoved, AgentProblem, AgentRetired
from ..store.base import Rows, Script, Statement, Store


def departure(agent: str) -> Statement:
    """Asks whether an agent has left; see `refuse_departed`."""
    return Statement("departure_of", (agent,))


def refuse_departed(agent: str, rows: Rows) -> None:
    """Nothing is written for an agent that has left."""
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


def in_words(store: Store, agent: str) -> str:
    """How an agent has left, for people; empty when it is at home."""
    for kind, at, body in store.read("departure_of", (agent,)):
        left = r.decode(kind, body)
        assert isinstance(left, r.AgentLeft), "what a departure refers to"
        return _refusal(agent, at, left).message
    return ""


def must_be_at_home(agent: str) -> Script[None]:
    """A part of a script."""
    [rows] = yield [departure(agent)]
    refuse_departed(agent, rows)


def held_at_home(owner: int) -> Script[None]:
    """For who writes to an agent in a stream of another one, which keeps its fence when the agent leaves."""
    [rows] = yield [Statement("hold_agent", (owner,))]
    for (name,) in rows:
        yield from must_be_at_home(name)


def refuse_if_gone(store: Store, agent: str) -> None:
    """The same for who wants to know before any work is done."""
    refuse_departed(agent, store.read("departure_of", (agent,)))
