"""Runs that wait for a run of another agent when one of the two agents leaves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perdure import records as r
from perdure.records.tasks import decode_awaited_run
from perdure.store.base import Store
from perdure.store.rows import first_number, read_run
from perdure.transfer.file_format import ExportAwaitedRun


def list_awaited_runs(store: Store, agent: str) -> list[ExportAwaitedRun]:
    """Return the unfinished runs of others that the agent's runs wait for, which are not exported."""
    return [wait for whose, wait in _iterate_waits(store) if whose == agent and wait.agent != agent]


def list_waiting_runs(store: Store, agent: str) -> list[tuple[str, ExportAwaitedRun]]:
    """Return the runs of other agents, with their agents, that wait for an unfinished run of this one."""
    found = [(whose, wait) for whose, wait in _iterate_waits(store) if whose != agent and wait.agent == agent]
    return [(whose, wait) for whose, wait in found if not _is_over(store, agent, wait.of)]


def is_here(store: Store, wait: ExportAwaitedRun) -> bool:
    """Return whether a store has the awaited run, or will have it."""
    owner = first_number(store.read("get_agent", (wait.agent,)))
    return bool(store.read("get_run", (wait.agent, wait.of)) or (owner and store.read("get_task", (owner, wait.of))))


def wait_notes(waits: Sequence[ExportAwaitedRun]) -> list[str]:
    """Return notes about exported runs whose awaited runs are not exported."""
    return [
        f"run {wait.run!r} waits for run {wait.of!r} of agent {wait.agent!r}, which is not in the file: "
        "in a store without that agent it fails with RunNotFound when resumed, and can be restarted once it is there"
        for wait in waits
    ]


def wait_notes_of_others(agent: str, waits: Sequence[tuple[str, ExportAwaitedRun]]) -> list[str]:
    """Return notes about runs that stay and wait for a run that leaves."""
    return [
        f"run {wait.run!r} of agent {whose!r} stays, and waits for run {wait.of!r} of {agent!r}, which leaves: "
        "it fails with AgentMoved at its next check"
        for whose, wait in waits
    ]


def _is_over(store: Store, agent: str, run: str) -> bool:
    found = read_run(store, agent, run)
    return found is not None and r.RunStatus(found.status).over


def _iterate_waits(store: Store) -> Iterator[tuple[str, ExportAwaitedRun]]:
    for agent, run, stream, seq in store.read("awaiting_runs"):
        record = _find_wait_start(store, stream, seq)
        awaited = decode_awaited_run(record.call.ident, record.text) if record is not None else None
        if awaited is not None:
            yield str(agent), ExportAwaitedRun(run, *awaited)


def _find_wait_start(store: Store, stream: int, seq: int) -> r.WaitBegan | None:
    """Return the entry that began a wait. For a fork it may be in the origin."""
    for _, kind, _, body, _, _ in store.read("journal_entry", (stream, seq)):
        record = r.decode(kind, body) if body is not None else None
        return record if isinstance(record, r.WaitBegan) else None
    for _, kind, _, body, _, _ in store.read("journal_page", (stream, 0, 1)):
        first = r.decode(kind, body) if body is not None else None
        return _find_wait_start(store, first.origin, seq) if isinstance(first, r.Forked) else None
    return None
