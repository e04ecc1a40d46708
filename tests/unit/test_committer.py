"""Group commit: who leads, who follows, and what a failure does to whom."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from perdure.errors import LeaseLost, StorageFull, StoreBusy
from perdure.platform.failpoints import Site
from perdure.store.base import Script, UnitOfWork
from perdure.store.group_commit import CommitBatch, Committer, CommitTicket
from perdure.values.limits import BATCH_COMMITS_MAX
from tests.conformance.kit import wait_until

WAIT = 100


class Work(UnitOfWork[int]):
    """Comes to its own number."""

    site = Site.WRITE

    def __init__(self, number: int = 0) -> None:
        self.number = number
        self.settled: list[bool] = []

    def script(self) -> Script[int]:
        yield []
        return self.number

    def settle(self, committed: bool) -> None:
        self.settled.append(committed)


class Disk:
    """Stands in for the transaction: notes each batch, can be stopped, and can fail."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.threads: list[str] = []
        self.open = threading.Event()
        self.open.set()
        self.entered = threading.Event()
        self.fail: BaseException | None = None
        self.refuse: set[int] = set()

    def execute(self, batch: Sequence[CommitTicket]) -> None:
        self.entered.set()
        assert self.open.wait(WAIT)
        self.batches.append([work(ticket).number for ticket in batch])
        self.threads.append(threading.current_thread().name)
        if self.fail is not None:
            error, self.fail = self.fail, None
            raise error
        for ticket in batch:
            if work(ticket).number in self.refuse:
                ticket.error = LeaseLost(str(work(ticket).number))
            else:
                ticket.result = work(ticket).number


def work(ticket: CommitTicket) -> Work:
    assert isinstance(ticket.unit, Work)
    return ticket.unit


def work_of(caller: Caller) -> Work:
    assert isinstance(caller.unit, Work)
    return caller.unit


class Caller(threading.Thread):
    """A thread that commits one unit and keeps what came of it."""

    def __init__(self, committer: Committer, unit: UnitOfWork[int]) -> None:
        super().__init__(daemon=True)
        self.committer = committer
        self.unit = unit
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.result = self.committer.submit(self.unit)
        except BaseException as error:
            self.error = error


def queue_callers(disk: Disk, committer: Committer, numbers: Sequence[int]) -> list[Caller]:
    """Callers that wait together behind a batch that cannot end: disk.open lets them go."""
    disk.open.clear()
    disk.entered.clear()
    first = Caller(committer, Work(-1))
    first.start()
    assert disk.entered.wait(WAIT)
    callers = [first]
    for number in numbers:
        callers.append(Caller(committer, Work(number)))
        callers[-1].start()
        count = len(callers) - 1
        wait_until(partial(_is_long, committer, count))
    return callers


def _is_long(committer: Committer, count: int) -> bool:
    return len(committer._queue) == count


def finish(disk: Disk, callers: Sequence[Caller]) -> None:
    disk.open.set()
    for caller in callers:
        caller.join(WAIT)
        assert not caller.is_alive()


def test_a_lone_caller_commits_in_its_own_thread() -> None:
    disk = Disk()
    committer = Committer(disk.execute)
    unit = Work(7)
    assert committer.submit(unit) == 7
    assert disk.threads == [threading.current_thread().name]
    assert unit.settled == [True]
    assert committer._thread is None


def test_waiting_writes_share_the_next_transaction() -> None:
    disk = Disk()
    callers = queue_callers(disk, Committer(disk.execute), range(10))
    finish(disk, callers)
    assert disk.batches == [[-1], list(range(10))]
    assert [caller.result for caller in callers] == [-1, *range(10)]


def test_a_batch_has_a_limit() -> None:
    disk = Disk()
    callers = queue_callers(disk, Committer(disk.execute), range(BATCH_COMMITS_MAX + 10))
    finish(disk, callers)
    assert [len(batch) for batch in disk.batches] == [1, BATCH_COMMITS_MAX, 10]


async def test_a_leader_does_not_wait_for_tasks_whose_loop_is_busy() -> None:
    """Their own thread will commit them; the leader has its result and goes."""
    disk = Disk()
    committer = Committer(disk.execute)
    disk.open.clear()
    caller = Caller(committer, Work(1))
    caller.start()
    assert disk.entered.wait(WAIT)
    task = asyncio.ensure_future(committer.submit_async(Work(2)))
    task_began = asyncio.Event()
    asyncio.get_running_loop().call_soon(task_began.set)
    committer._kicked = True  # as if the kick were still to come: this loop has no time for it
    await task_began.wait()
    disk.open.set()
    caller.join(WAIT)
    assert not caller.is_alive()
    committer._kick()
    assert await asyncio.wait_for(task, WAIT) == 2
    committer.close()


def test_a_unit_that_fails_leaves_its_neighbours_alone() -> None:
    disk = Disk()
    disk.refuse = {2}
    callers = queue_callers(disk, Committer(disk.execute), range(5))
    finish(disk, callers)
    assert [type(caller.error) for caller in callers[1:]] == [type(None)] * 2 + [LeaseLost] + [type(None)] * 2
    assert [caller.result for caller in callers[1:]] == [0, 1, None, 3, 4]
    settled = [caller.unit.settled for caller in callers[1:] if isinstance(caller.unit, Work)]
    assert settled == [[True], [True], [False], [True], [True]]


@pytest.mark.parametrize("error", [StorageFull(), KeyboardInterrupt()])
def test_an_error_of_the_whole_batch_reaches_every_caller_and_no_later_one(error: BaseException) -> None:
    disk = Disk()
    committer = Committer(disk.execute)
    callers = queue_callers(disk, committer, range(5))
    disk.refuse = {3}

    original = disk.execute

    def failing(batch: Sequence[CommitTicket]) -> None:
        original(batch)
        if len(batch) > 1:
            raise error

    committer._execute = failing
    finish(disk, callers)
    assert callers[0].result == -1
    heard = [caller.error for caller in callers[1:]]
    if isinstance(error, StorageFull):
        assert heard == [error] * 5
    else:  # what interrupts the one who leads is told to the others as what it is to them
        assert heard[0] is error
        assert [type(one) for one in heard[1:]] == [StoreBusy] * 4
        assert [one.__cause__ for one in heard[1:] if one is not None] == [error] * 4
    assert all(caller.unit.settled == [False] for caller in callers[1:] if isinstance(caller.unit, Work))
    assert committer.submit(Work(9)) == 9


def test_units_are_settled_before_their_callers_go_on() -> None:
    disk = Disk()
    seen: list[list[bool]] = []

    def caller(committer: Committer, number: int) -> None:
        unit = Work(number)
        committer.submit(unit)
        seen.append(unit.settled)

    committer = Committer(disk.execute)
    threads = [threading.Thread(target=caller, args=(committer, number)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert seen == [[True]] * 16


def test_32_threads_get_their_own_results_once_and_in_their_order() -> None:
    disk = Disk()
    committer = Committer(disk.execute)
    results: dict[int, list[int]] = {}

    def caller(me: int) -> None:
        results[me] = [committer.submit(Work(me * 1000 + n)) for n in range(50)]

    threads = [threading.Thread(target=caller, args=(me,)) for me in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert results == {me: [me * 1000 + n for n in range(50)] for me in range(32)}
    executed = [number for batch in disk.batches for number in batch]
    assert sorted(executed) == sorted(number for numbers in results.values() for number in numbers)
    for me in range(32):
        assert [number for number in executed if number // 1000 == me] == results[me]


class Interrupt(BaseException):
    """What a signal handler of the user's raises."""


def test_a_follower_that_is_interrupted_is_not_committed_later(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk()
    committer = Committer(disk.execute)
    original = Committer._sleep

    def sleep(self: Committer, ticket: CommitTicket) -> None:
        if work(ticket).number == 2:
            raise Interrupt
        original(self, ticket)

    monkeypatch.setattr(Committer, "_sleep", sleep)
    callers = queue_callers(disk, committer, [])
    follower = Caller(committer, Work(2))
    follower.start()
    follower.join(WAIT)
    finish(disk, callers)
    assert isinstance(follower.error, Interrupt)
    assert committer.submit(Work(3)) == 3
    assert disk.batches == [[-1], [3]]


@pytest.mark.parametrize("ended", [False, True])
def test_a_batch_whose_leader_was_interrupted_is_settled_by_the_next_one(ended: bool) -> None:
    """A signal handler of the user's raises after the transaction and before anybody has been told."""
    disk = Disk()

    def execute(batch: CommitBatch) -> None:
        disk.execute(batch)
        batch.ended = ended

    committer = Committer(execute)
    settle = committer._settle

    def settle_not(failure: BaseException | None) -> None:
        committer._settle = settle  # type: ignore[method-assign]
        raise Interrupt

    committer._settle = settle_not  # type: ignore[method-assign]
    callers = queue_callers(disk, committer, [1, 2])
    finish(disk, callers)
    assert isinstance(callers[0].error, Interrupt)
    assert [work_of(caller).settled for caller in callers] == [[ended], [True], [True]]
    assert [caller.result for caller in callers[1:]] == [1, 2]


@pytest.mark.parametrize("ended", [False, True])
def test_an_interrupt_after_the_commit_is_raised_and_undoes_nothing(ended: bool) -> None:
    disk = Disk()

    def execute(batch: CommitBatch) -> None:
        disk.execute(batch)
        batch.ended = ended
        raise Interrupt

    committer, unit = Committer(execute), Work(1)
    with pytest.raises(Interrupt):
        committer.submit(unit)
    assert unit.settled == [ended]


async def test_tasks_of_one_turn_of_the_loop_share_a_transaction() -> None:
    disk = Disk()
    committer = Committer(disk.execute)
    results = await asyncio.wait_for(asyncio.gather(*(committer.submit_async(Work(n)) for n in range(20))), WAIT)
    assert results == list(range(20))
    assert disk.batches == [list(range(20))]
    assert disk.threads == ["perdure-commit"]
    committer.close()


async def test_the_loop_goes_on_while_a_commit_is_slow() -> None:
    disk = Disk()
    committer = Committer(disk.execute)
    disk.open.clear()
    task = asyncio.ensure_future(committer.submit_async(Work(1)))
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert not task.done()
    disk.open.set()
    assert await asyncio.wait_for(task, WAIT) == 1
    committer.close()


async def test_a_cancelled_caller_is_committed_all_the_same() -> None:
    disk = Disk()
    committer = Committer(disk.execute)
    disk.open.clear()
    unit = Work(1)
    task = asyncio.ensure_future(committer.submit_async(unit))
    while not disk.entered.is_set():
        await asyncio.sleep(0.001)
    for _ in range(3):  # a task group may cancel more than once
        task.cancel()
        await asyncio.sleep(0.001)
    assert not task.done(), "a cancelled caller must not go on before it is known what was committed"
    disk.open.set()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, WAIT)
    assert disk.batches == [[1]]
    assert unit.settled == [True]
    committer.close()


async def test_errors_reach_those_who_await() -> None:
    disk = Disk()
    committer = Committer(disk.execute)
    disk.refuse = {1}
    results = await asyncio.wait_for(
        asyncio.gather(*(committer.submit_async(Work(n)) for n in range(3)), return_exceptions=True), WAIT
    )
    assert [type(result) for result in results] == [int, LeaseLost, int]
    disk.fail = OSError("the disk is gone")
    with pytest.raises(OSError, match="the disk is gone"):
        await asyncio.wait_for(committer.submit_async(Work(5)), WAIT)
    committer.close()


def test_two_loops_and_plain_threads_share_one_committer() -> None:
    disk = Disk()
    committer = Committer(disk.execute)
    results: dict[str, list[int]] = {}

    def loop(name: str, base: int) -> None:
        async def main() -> list[int]:
            return list(await asyncio.gather(*(committer.submit_async(Work(base + n)) for n in range(30))))

        results[name] = asyncio.run(asyncio.wait_for(main(), WAIT))

    def plain(name: str, base: int) -> None:
        results[name] = [committer.submit(Work(base + n)) for n in range(30)]

    threads = [
        threading.Thread(target=target, args=(f"{target.__name__}{base}", base))
        for base, target in ((0, loop), (100, loop), (200, plain), (300, plain))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert sorted(number for numbers in results.values() for number in numbers) == [
        base + n for base in (0, 100, 200, 300) for n in range(30)
    ]
    committer.close()


def test_closing_ends_the_thread() -> None:
    disk = Disk()
    committer = Committer(disk.execute)
    asyncio.run(committer.submit_async(Work(1)))
    thread = committer._thread
    assert thread is not None
    committer.close()
    assert not thread.is_alive()
    committer.close()


def test_at_rest_waits_for_a_commit_that_is_under_way_and_keeps_new_ones_out() -> None:
    disk = Disk()
    committer = Committer(disk.execute)
    disk.open.clear()
    first = Caller(committer, Work(1))
    first.start()
    assert disk.entered.wait(WAIT)
    threading.Timer(0.05, disk.open.set).start()
    with committer.quiesce(WAIT):
        assert disk.batches == [[1]]
        second = Caller(committer, Work(2))
        second.start()
        second.join(0.1)
        assert disk.batches == [[1]]
    second.join(WAIT)
    assert disk.batches == [[1], [2]]
    committer.close()


def test_at_rest_in_the_middle_of_a_commit_does_not_wait_for_itself() -> None:
    def execute(batch: CommitBatch) -> None:
        with committer.quiesce(0.01):
            batch[0].result = 7

    committer = Committer(execute)
    assert committer.submit(Work()) == 7
    assert committer.submit(Work()) == 7  # who did not get the lead has not given it back either
