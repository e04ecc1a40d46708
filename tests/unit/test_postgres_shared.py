"""Shared commits on a server: entries of many streams in one statement, and no failure reaches a neighbour."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from perdure.errors import LeaseLost
from perdure.journal.append import Append, StreamHead
from perdure.platform.failpoints import Site
from perdure.records import CallIdentity, Record, StepDone
from perdure.store import open_store
from perdure.store.base import FinalBatch, RowRefused, Statement
from perdure.store.outage import ConnectionCut
from perdure.store.postgres import loop_commits
from perdure.store.postgres.loop_commits import OVERLAP_MIN, UNDER_WAY_MAX, UNITS_MAX
from perdure.store.postgres.shared import SharedCommit
from perdure.values.clock import SYSTEM_CLOCK
from tests.conformance.kit import Behind, wait_until
from tests.unit.units import append, behind, create_head

pytestmark = pytest.mark.stores("postgres")
WAIT = 100


def step(name: str = "s") -> Record:
    """An entry that changes no view."""
    return StepDone(CallIdentity("", name, b"i", 0), 0, 1, b"r")


class Poisoned(Append):
    """An entry that no column can hold: the server refuses the whole statement."""

    @property
    def shareable(self) -> bool:
        return True

    def entries(self, seq: int, link: bytes) -> tuple[FinalBatch, int, bytes]:
        statements, seq, link = super().entries(seq, link)
        [given] = statements
        stream, number, kind, _, *rest = given.args
        return FinalBatch([Statement(given.name, (stream, number, kind, 2**70, *rest), given.must)]), seq, link


def heads(store: Any, count: int) -> list[StreamHead]:
    return [create_head(store) for _ in range(count)]


def transactions(store: Any) -> int:
    [(count,)] = behind(store, "SELECT count(DISTINCT xmin::text) FROM journal")
    return int(count)


def entries(store: Any, head: StreamHead) -> list[int]:
    return [row[0] for row in store.read("journal_of", (head.stream, 0))]


def in_tasks(store: Any, units: list[Append]) -> list[Any]:
    """Commit units in tasks that are ready at the same time; their results and errors."""

    async def program() -> list[Any]:
        return await asyncio.gather(*[store.submit_async(unit) for unit in units], return_exceptions=True)

    return asyncio.run(program())


def in_threads(store: Any, units: list[Append]) -> list[Any]:
    """Commit units in threads that all wait for the same leader; their results and errors."""
    outcomes: list[Any] = [None] * len(units)

    def work(number: int) -> None:
        try:
            outcomes[number] = store.submit(units[number])
        except Exception as error:
            outcomes[number] = error

    committer = store._shared._committer
    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(units))]
    with committer._lead:
        for thread in threads:
            thread.start()
        wait_until(lambda: len(committer._queue) == len(units))
    for thread in threads:
        thread.join(WAIT)
    return outcomes


BOTH = pytest.mark.parametrize("together", [in_tasks, in_threads])
Together = Callable[[Any, list[Append]], list[Any]]


@BOTH
def test_streams_share_one_transaction(store: Any, together: Together) -> None:
    many = heads(store, 20)
    assert together(store, [append(head, step()) for head in many]) == [1] * 20
    assert transactions(store) == 1
    assert together(store, [append(head, step()) for head in many]) == [2] * 20
    assert [entries(store, head) for head in many] == [[1, 2]] * 20
    assert [head.seq for head in many] == [2] * 20


@BOTH
def test_a_lost_lease_fails_its_own_stream_only(store: Any, together: Together) -> None:
    many = heads(store, 6)
    many[2].fence = 9
    outcomes = together(store, [append(head, step()) for head in many])
    assert isinstance(outcomes.pop(2), LeaseLost)
    assert outcomes == [1] * 5
    assert [entries(store, head) for head in many] == [[1], [1], [], [1], [1], [1]]
    assert many[2].seq == 0


@BOTH
def test_an_entry_of_somebody_else_fails_its_own_stream_only(store: Any, together: Together) -> None:
    many = heads(store, 6)
    other = StreamHead(store.identity, many[4].stream, 1)
    assert store.submit(append(other, step("theirs"))) == 1
    outcomes = together(store, [append(head, step("ours")) for head in many])
    assert isinstance(outcomes.pop(4), LeaseLost)
    assert outcomes == [1] * 5
    assert entries(store, many[4]) == [1]


@BOTH
def test_an_entry_that_the_server_refuses_fails_its_own_stream_only(store: Any, together: Together) -> None:
    many = heads(store, 6)
    units: list[Append] = [append(head, step()) for head in many]
    units[3] = Poisoned(Site.WRITE, many[3], [step()], SYSTEM_CLOCK)
    outcomes = together(store, units)
    assert isinstance(outcomes.pop(3), RowRefused)
    assert outcomes == [1] * 5
    assert [entries(store, head) for head in many] == [[1], [1], [1], [], [1], [1]]


@BOTH
def test_a_locked_lease_keeps_nobody_else_waiting(store: Any, together: Together) -> None:
    many = heads(store, 6)
    outcomes: list[Any] = []
    with Behind(store.url) as other:
        other.execute("BEGIN")
        other.execute("SELECT * FROM leases WHERE stream = ? FOR UPDATE", (many[1].stream,))
        commits = threading.Thread(
            target=lambda: outcomes.extend(together(store, [append(head, step()) for head in many]))
        )
        commits.start()
        wait_until(lambda: sum(len(entries(store, head)) for head in many) == 5)
        assert entries(store, many[1]) == []
        assert other.execute("UPDATE leases SET fence = 2 WHERE stream = ?", (many[1].stream,)) == []
        other.execute("COMMIT")
    commits.join(WAIT)
    assert isinstance(outcomes.pop(1), LeaseLost), "it was taken over meanwhile"
    assert outcomes == [1] * 5


@BOTH
@pytest.mark.parametrize("arrives", [True, False])
def test_after_a_lost_answer_each_entry_is_looked_up(
    store: Any, together: Together, monkeypatch: pytest.MonkeyPatch, arrives: bool
) -> None:
    """The first shared commit is cut after or before the server gets it; every entry is there once."""
    many, begin, cuts = heads(store, 6), SharedCommit.begin, list[int]()

    def cut(self: SharedCommit, link: Any) -> Any:
        if cuts:
            return begin(self, link)
        cuts.append(len(self._units))
        for unit in self._units:
            unit.attempt.committing = True
        if arrives:
            begin(self, link).wait(float("inf"))
        raise ConnectionCut("test")

    monkeypatch.setattr(SharedCommit, "begin", cut)
    assert together(store, [append(head, step()) for head in many]) == [1] * 6
    assert cuts == [6]
    assert [entries(store, head) for head in many] == [[1]] * 6
    assert [head.seq for head in many] == [1] * 6
    assert (transactions(store) == 1) == arrives


def test_a_cancelled_task_waits_for_its_commit_and_cancels_no_other(store: Any) -> None:
    many = heads(store, 5)

    async def program() -> list[Any]:
        tasks = [asyncio.create_task(store.submit_async(append(head, step()))) for head in many]
        await asyncio.sleep(0)
        assert tasks[2].cancel()
        assert not tasks[2].done()
        return await asyncio.gather(*tasks, return_exceptions=True)

    outcomes = asyncio.run(program())
    assert isinstance(outcomes.pop(2), asyncio.CancelledError)
    assert outcomes == [1] * 4
    assert entries(store, many[2]) == [1]
    assert many[2].seq == 1
    assert store._lanes._lanes == {}


def test_a_blocked_loop_holds_up_no_other_thread(store: Any) -> None:
    """The loop has sent a commit, or is about to, and does not come back: a thread of the same stream goes on."""
    first, second = heads(store, 2)
    done = list[int]()

    def work(head: StreamHead) -> None:
        done.append(store.submit(append(head, step())))

    async def blocked(head: StreamHead, pauses: int) -> Any:
        task = asyncio.create_task(store.submit_async(append(head, step())))
        for _ in range(pauses):
            await asyncio.sleep(0)
        thread = threading.Thread(target=work, args=(head,))
        thread.start()
        thread.join(WAIT)  # blocks the loop
        assert not thread.is_alive()
        return await task

    async def program() -> list[Any]:
        await store.submit_async(append(heads(store, 1)[0], step()))
        return [await blocked(first, 1), await blocked(second, 2)]

    assert asyncio.run(program()) == [1, 1]
    assert done == [2, 2]


def test_an_abandoned_loop_holds_up_nobody(store: Any) -> None:
    head = create_head(store)
    loop = asyncio.new_event_loop()

    async def program() -> None:
        await store.submit_async(append(create_head(store), step()))
        task = asyncio.ensure_future(store.submit_async(append(head, step())))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.get_coro().close()  # type: ignore[union-attr]

    loop.run_until_complete(program())
    loop.close()
    assert store.submit(append(head, step())) == 2


def test_an_answer_that_never_comes_is_given_up(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    many = heads(store, 3)
    monkeypatch.setattr(loop_commits, "CHECK_SECONDS", 0.01)
    monkeypatch.setattr(loop_commits, "deadline", lambda pool: 0.0)
    monkeypatch.setattr("perdure.store.postgres.connection.PendingReply.advance", _deaf_once())
    assert in_tasks(store, [append(head, step()) for head in many]) == [1] * 3
    assert [entries(store, head) for head in many] == [[1]] * 3


def _deaf_once() -> Any:
    from perdure.store.postgres.connection import PendingReply

    advance, first = PendingReply.advance, list[Any]()

    def deaf(self: PendingReply) -> Any:
        if not first:
            first.append(self)
        return None if self is first[0] else advance(self)

    return deaf


def test_never_more_connections_than_the_pool_has(store_url: str) -> None:
    store: Any = open_store(store_url + "&pool_size=3")
    count, most = UNITS_MAX * UNDER_WAY_MAX + OVERLAP_MIN, 0
    many = heads(store, count)

    async def commit(head: StreamHead) -> None:
        nonlocal most
        for _ in range(3):
            await store.submit_async(append(head, step()))
            most = max(most, len(store._pool._connections))

    async def program() -> None:
        waiting: list[Awaitable[Any]] = [commit(head) for head in many]
        waiting += [asyncio.to_thread(store.submit, append(create_head(store), step())) for _ in range(8)]
        await asyncio.gather(*waiting)

    asyncio.run(program())
    assert 1 <= most <= 3
    assert [entries(store, head) for head in many] == [[1, 2, 3]] * count
    store.close()
