"""Who waits for whom: runs that wait for the end of a run of another agent, when one of the two leaves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .. import records as r
from ..store.base import Store
from ..task_records import awaited_run
from .lines import Awaited


def waits_of(store: Store, agent: str) -> list[Awaited]:
    """What the runs of an agent wait for that does not go along: the end of others' runs."""
    return [it for whose, it in _waits(store) if whose == agent and it.agent != agent]


def waits_for(store: Store, agent: str) -> list[tuple[str, Awaited]]:
    """Runs of other agents, and whose, that wait for one of this agent's, which has not ended."""
    found = [(whose, it) for whose, it in _waits(store) if whose != agent and it.agent == agent]
    return [(whose, it) for whose, it in found if not _is_over(store, agent, it.of)]


def is_here(store: Store, it: Awaited) -> bool:
    """Whether a store has the run that is waited for, or will have it."""
    owner = store.read("get_agent", (it.agent,))
    return bool(store.read("get_run", (it.agent, it.of)) or (owner and store.read("get_task", (owner[0][0], it.of))))


def told(waits: Sequence[Awaited]) -> list[str]:
    """What has to be said about runs that go along without what they wait for."""
    return [
        f"run {it.run!r} waits for run {it.of!r} of agent {it.agent!r}, which does not come along: resumed in a store "
        "without it, it fails with RunNotFound, and can be started again when that agent is there"
        for it in waits
    ]


def told_of_others(agent: str, waits: Sequence[tuple[str, Awaited]]) -> list[str]:
    """The same about runs that stay, and wait for one that goes."""
    return [
        f"run {it.run!r} of agent {whose!r} stays, and waits for run {it.of!r} of {agent!r}, which does not end here: "
        "it fails with AgentMoved when it looks for it the next time"
        for whose, it in waits
    ]


def _is_over(store: Store, agent: str, run: str) -> bool:
    rows = store.read("get_run", (agent, run))
    return bool(rows) and r.Status(rows[0][3]).over


def _waits(store: Store) -> Iterator[tuple[str, Awaited]]:
    for agent, run, stream, seq in store.read("awaiting_runs"):
        it = _began(store, stream, seq)
        awaited = awaited_run(it.call.ident, it.text) if it is not None else None
        if awaited is not None:
            yield str(agent), Awaited(run, *awaited)


def _began(store: Store, stream: int, seq: int) -> r.WaitBegan | None:
    """The entry that began a wait: of a fork it may be the origin's."""
    for _, kind, _, body, _, _ in store.read("event_at", (stream, seq)):
        record = r.decode(kind, body) if body is not None else None
        return record if isinstance(record, r.WaitBegan) else None
    for _, kind, _, body, _, _ in store.read("events_page", (stream, 0, 1)):
        first = r.decode(kind, body) if body is not None else None
        return _began(store, first.origin, seq) if isinstance(first, r.Forked) else None
    return None
