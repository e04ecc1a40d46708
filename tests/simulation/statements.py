"""The named statements of `store/sql/` for PostgreSQL that runs, steps, effects and leases use.

Each is a generator over a transaction: it returns (rows, number of changed rows). What the SQL says about locks and
about looking again after a wait is done here by hand, so a change of one is a change of the other;
`test_the_statements_are_those_of_the_store` compares their parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from tests.simulation.database import Row, Transaction

Rows = list[tuple[Any, ...]]
AGENT_STREAM = 1 << 30
"""Of the one agent, whose own stream nobody reads or writes."""
Executing = Generator[Transaction, None, tuple[Rows, int]]
NOTHING: tuple[Rows, int] = ([], 0)


class Server:
    """What a statement needs besides its transaction: the server's clock, and which of its rules are switched off."""

    def __init__(self, clock: Callable[[], int], broken: frozenset[str] = frozenset()) -> None:
        self.clock = clock
        self.broken = broken

    def now(self, callers: int) -> int:
        """By the server's clock; a caller's is not that of another caller."""
        return callers if "callers-clock" in self.broken else self.clock()


# -- the journal ------------------------------------------------------------------------------------------------------


def append_entry(
    transaction: Transaction,
    server: Server,
    stream: int,
    seq: int,
    kind: int,
    at: int,
    body: bytes,
    chain: bytes,
    fence: int,
) -> Executing:
    row = transaction.database.tables["leases"].get(stream)
    lease = transaction.read_visible(row)
    unfenced = "no-fence" in server.broken
    if row is None or lease is None or (lease[0] != fence and not unfenced):
        return NOTHING
    yield from transaction.share(row)
    lease = transaction.read_visible(row)
    if lease is None or (lease[0] != fence and not unfenced):
        return NOTHING
    yield from transaction.insert("journal", (stream, seq), (kind, at, body, chain, fence))
    return [(0,)], 1  # nobody orders anything here


def _event(key: tuple[int, int], value: tuple[Any, ...]) -> tuple[Any, ...]:
    kind, at, body, chain, _ = value
    return key[1], kind, at, body, chain, None


def journal_of(transaction: Transaction, server: Server, stream: int, after: int) -> Executing:
    yield from ()
    rows = [_event(key, value) for key, value in transaction.rows("journal") if key[0] == stream and key[1] > after]
    return sorted(rows), 0


def last_compaction(transaction: Transaction, server: Server, stream: int) -> Executing:
    yield from ()
    return NOTHING  # nobody compacts here


def journal_entry(transaction: Transaction, server: Server, stream: int, seq: int) -> Executing:
    yield from ()
    value = transaction.get("journal", (stream, seq))
    return ([_event((stream, seq), value)] if value is not None else []), 0


def chain_at(transaction: Transaction, server: Server, stream: int, seq: int) -> Executing:
    yield from ()
    value = transaction.get("journal", (stream, seq))
    return ([(value[3],)] if value is not None else []), 0


def head_of(transaction: Transaction, server: Server, stream: int) -> Executing:
    rows, _ = yield from journal_of(transaction, server, stream, 0)
    return [(row[0], row[4]) for row in rows[-1:]], 0


def add_stream(transaction: Transaction, server: Server, kind: str, name: str, at: int) -> Executing:
    count = transaction.database.tables["stream_count"][0]
    yield from transaction.lock(count)
    seen = transaction.read_visible(count)
    assert seen is not None
    last = seen[0] + 1
    transaction.put("stream_count", count, (last,))
    yield from transaction.insert("streams", last, (kind, name, at))
    return [(last,)], 1


# -- holders ----------------------------------------------------------------------------------------------------------


def drop_dead_holders(transaction: Transaction, server: Server, boot: str, now: int) -> Executing:
    time = server.now(now)
    held = {lease[1] for _, lease in transaction.rows("leases")}
    rows = transaction.database.tables["holders"]
    late = [rows[key] for key, value in transaction.rows("holders") if value[6] < time and key not in held]
    dropped = 0
    for row in late:
        yield from transaction.lock(row, delete=True)
        value = transaction.read_visible(row)
        if value is not None and value[6] < time:
            transaction.put("holders", row, None)
            dropped += 1
    return [], dropped


def ensure_holder(
    transaction: Transaction,
    server: Server,
    holder: int,
    boot: str,
    namespace: str,
    pid: int,
    started: int,
    host: str,
    at: int,
    now: int,
    ttl: int,
) -> Executing:
    row = transaction.database.tables["holders"].get(holder)
    if row is not None and _has_time(transaction, row, server.now(now) + ttl // 2):
        yield from transaction.keep(row)
        if _has_time(transaction, row, server.now(now) + ttl // 2):
            return [], 0
    return (yield from renew_holder(transaction, server, holder, boot, namespace, pid, started, host, at, now, ttl))


def _has_time(transaction: Transaction, row: Row, until: int) -> bool:
    value = transaction.read_visible(row)
    return value is not None and value[6] > until


def renew_holder(
    transaction: Transaction,
    server: Server,
    holder: int,
    boot: str,
    namespace: str,
    pid: int,
    started: int,
    host: str,
    at: int,
    now: int,
    ttl: int,
) -> Executing:
    deadline = server.now(now) + ttl
    while True:
        row = transaction.database.tables["holders"].get(holder)
        if row is None:
            yield from transaction.insert("holders", holder, (boot, namespace, pid, started, host, at, deadline))
            return [], 1
        yield from transaction.lock(row)
        value = transaction.read_visible(row)
        if value is not None:
            transaction.put("holders", row, (*value[:6], deadline))
            return [], 1
        if transaction.database.tables["holders"].get(holder) is row:
            transaction.put("holders", row, (boot, namespace, pid, started, host, at, deadline))
            return [], 1


def drop_holder(transaction: Transaction, server: Server, holder: int) -> Executing:
    row = transaction.database.tables["holders"].get(holder)
    if row is None or transaction.read_visible(row) is None:
        return NOTHING
    yield from transaction.lock(row, delete=True)
    transaction.put("holders", row, None)
    return [], 1


# -- leases -----------------------------------------------------------------------------------------------------------


def add_lease(transaction: Transaction, server: Server, stream: int, holder: int) -> Executing:
    yield from transaction.insert("leases", stream, (1, holder))
    return [], 1


def read_lease(transaction: Transaction, server: Server, stream: int, now: int) -> Executing:
    yield from ()
    lease = transaction.get("leases", stream)
    if lease is None:
        return NOTHING
    fence, holder = lease
    known = transaction.get("holders", holder) if holder is not None else None
    if known is None:
        return [(fence, holder, None, None, None, None, None, None, None)], 0
    left = -1 if "no-waiting" in server.broken else known[6] - server.now(now)
    return [(fence, holder, *known[:6], left)], 0


def holder_time_left(transaction: Transaction, server: Server, holder: int | None, now: int) -> Executing:
    yield from ()
    known = transaction.get("holders", holder)
    if known is None or "no-waiting" in server.broken:
        return NOTHING
    return [(known[6] - server.now(now),)], 0


def _change_lease(transaction: Transaction, stream: int, fence: int, new: tuple[int, int | None]) -> Executing:
    row = transaction.database.tables["leases"].get(stream)
    if row is None or not _has_fence(transaction, row, fence):
        return NOTHING
    yield from transaction.lock(row)
    if not _has_fence(transaction, row, fence):
        return NOTHING
    transaction.put("leases", row, new)
    return [], 1


def _has_fence(transaction: Transaction, row: Row, fence: int) -> bool:
    lease = transaction.read_visible(row)
    return lease is not None and lease[0] == fence


def take_lease(transaction: Transaction, server: Server, stream: int, fence: int, holder: int) -> Executing:
    return (yield from _change_lease(transaction, stream, fence, (fence + 1, holder)))


def release_lease(transaction: Transaction, server: Server, stream: int, fence: int) -> Executing:
    return (yield from _change_lease(transaction, stream, fence, (fence, None)))


def release_all(transaction: Transaction, server: Server, holder: int) -> Executing:
    rows = transaction.database.tables["leases"]
    changed = 0
    for row in [rows[key] for key, lease in transaction.rows("leases") if lease[1] == holder]:
        yield from transaction.lock(row)
        lease = transaction.read_visible(row)
        if lease is not None and lease[1] == holder:
            transaction.put("leases", row, (lease[0], None))
            changed += 1
    return [], changed


def check_lease(transaction: Transaction, server: Server, stream: int, fence: int) -> Executing:
    row = transaction.database.tables["leases"].get(stream)
    if row is None or not _has_fence(transaction, row, fence):
        return NOTHING
    yield from transaction.share(row)
    return ([(1,)] if _has_fence(transaction, row, fence) else []), 0


# -- runs -------------------------------------------------------------------------------------------------------------


def add_run(
    transaction: Transaction,
    server: Server,
    stream: int,
    agent: str,
    id: str,
    input_digest: bytes,
    parent: int,
    at: int,
) -> Executing:
    yield from transaction.insert("run_names", (agent, id), (stream,))
    yield from transaction.insert("runs", stream, (agent, id, "running", input_digest, parent, at, at, 0, 0, ""))
    return [], 1


def get_agent(transaction: Transaction, server: Server, name: str) -> Executing:
    yield from ()
    return [(AGENT_STREAM, bytes(32))], 0


def lock_namespace(transaction: Transaction, server: Server, owner: int, namespace: str) -> Executing:
    yield from ()
    return [(1,)], 0  # nobody queues anything here, and new runs wait for each other at `add_stream`


def get_task(transaction: Transaction, server: Server, owner: int, run: str) -> Executing:
    yield from ()
    return NOTHING


def set_task_state(
    transaction: Transaction, server: Server, stream: Any, state: Any, ready_at: Any, attempts: Any, failed_seq: Any
) -> Executing:
    yield from ()
    return NOTHING


def drop_task(transaction: Transaction, server: Server, stream: Any) -> Executing:
    yield from ()
    return NOTHING


def drop_task_waits(transaction: Transaction, server: Server, stream: Any) -> Executing:
    yield from ()
    return NOTHING


def wake_by_run(transaction: Transaction, server: Server, stream: Any) -> Executing:
    yield from ()
    return NOTHING


def last_order_under(transaction: Transaction, server: Server, stream: int, fence: int) -> Executing:
    yield from ()
    return NOTHING


def departure_of(transaction: Transaction, server: Server, name: str) -> Executing:
    """Nobody moves in these histories."""
    yield from ()
    return NOTHING


def get_run(transaction: Transaction, server: Server, agent: str, id: str) -> Executing:
    yield from ()
    named = transaction.get("run_names", (agent, id))
    value = transaction.get("runs", named[0]) if named is not None else None
    return ([(named[0], *value, 0, 0)] if named is not None and value is not None else []), 0  # forked from none


def _change_run(
    transaction: Transaction, stream: int, status: str, at: int, outcome: int, error: str, again: int
) -> Executing:
    row = transaction.database.tables["runs"].get(stream)
    if row is None or transaction.read_visible(row) is None:
        return NOTHING
    yield from transaction.lock(row)
    seen = transaction.read_visible(row)
    assert seen is not None
    agent, run, _, digest, parent, started, _, resumes, _, _ = seen
    transaction.put("runs", row, (agent, run, status, digest, parent, started, at, resumes + again, outcome, error))
    return [], 1


def resume_run(transaction: Transaction, server: Server, stream: int, at: int) -> Executing:
    return (yield from _change_run(transaction, stream, "running", at, 0, "", 1))


def set_run_status(
    transaction: Transaction, server: Server, stream: int, status: str, at: int, outcome: int, error: str
) -> Executing:
    return (yield from _change_run(transaction, stream, status, at, outcome, error, 0))


def add_savings(
    transaction: Transaction,
    server: Server,
    stream: int,
    model: str,
    provider: str,
    day: int,
    steps: int,
    took_us: int,
    calls: int,
    unpriced: int,
    input_tokens: int,
    output_tokens: int,
    cached_input_tokens: int,
    cache_write_tokens: int,
    cost: int,
) -> Executing:
    tokens = input_tokens, output_tokens, cached_input_tokens, cache_write_tokens
    more = steps, took_us, calls, unpriced, *tokens, cost
    key = (stream, model, provider, day)
    row = transaction.database.tables["savings"].get(key)
    if row is None or transaction.read_visible(row) is None:
        yield from transaction.insert("savings", key, more)
        return [], 1
    yield from transaction.lock(row)
    seen = transaction.read_visible(row)
    assert seen is not None
    transaction.put("savings", row, tuple(a + b for a, b in zip(seen, more, strict=True)))
    return [], 1


def get_answer(transaction: Transaction, server: Server, stream: int, about: int) -> Executing:
    yield from ()
    return NOTHING


STATEMENTS: dict[str, Callable[..., Executing]] = {
    statement.__name__: statement
    for statement in (
        append_entry,
        journal_of,
        last_compaction,
        journal_entry,
        chain_at,
        head_of,
        add_stream,
        drop_dead_holders,
        renew_holder,
        ensure_holder,
        drop_holder,
        add_lease,
        read_lease,
        holder_time_left,
        take_lease,
        release_lease,
        release_all,
        check_lease,
        add_run,
        get_agent,
        lock_namespace,
        get_task,
        set_task_state,
        wake_by_run,
        drop_task_waits,
        drop_task,
        last_order_under,
        departure_of,
        get_run,
        resume_run,
        set_run_status,
        add_savings,
        get_answer,
    )
}
