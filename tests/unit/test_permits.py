"""Permits in the order of asking, and lanes in which one goes after the other."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from perdure.errors import StoreBusy
from perdure.platform.failpoints import Site
from perdure.store.base import UnitOfWork
from perdure.store.lanes import CommitLanes, CommitThreads, LaneTicket
from perdure.store.semaphore import Gate
from tests.conformance.kit import wait_until

WAIT = 100.0
LONG = time.monotonic() + 3600


def test_there_are_so_many_permits_and_no_more() -> None:
    gate = Gate(2)
    assert gate.enter(LONG)
    assert gate.enter(LONG)
    assert not gate.enter(time.monotonic())
    gate.leave()
    assert gate.enter(time.monotonic())


def test_a_caller_that_timed_out_gets_no_permit() -> None:
    gate = Gate(1)
    assert gate.enter(LONG)
    assert not gate.enter(time.monotonic() + 0.01)
    gate.leave()
    assert gate.enter(time.monotonic()), "the permit went to somebody who does not wait any more"


def test_permits_are_given_in_the_order_of_asking() -> None:
    gate, order = Gate(1), list[int]()
    assert gate.enter(LONG)
    for number in range(5):
        assert not gate.ask(lambda number=number: order.append(number))  # type: ignore[misc]
    for _ in range(5):
        gate.leave()
    assert order == [0, 1, 2, 3, 4]
    gate.leave()
    assert gate.ask(lambda: None)


def test_a_thread_that_waits_is_woken() -> None:
    gate, entered = Gate(1), threading.Event()
    assert gate.enter(LONG)
    thread = threading.Thread(target=lambda: gate.enter(LONG) and entered.set())
    thread.start()
    wait_until(lambda: len(gate._waiting) == 1)
    assert not entered.is_set()
    gate.leave()
    assert entered.wait(WAIT)
    thread.join(WAIT)


class Work(UnitOfWork[Any]):
    """Something to do in a lane."""

    site = Site.WRITE

    def __init__(self, lane: int, call: Callable[[], Any] = lambda: None) -> None:
        self.lane = lane
        self.call = call


def check_one_by_one(group: Sequence[LaneTicket]) -> None:
    for ticket in group:
        try:
            ticket.settle(ticket.unit.call())  # type: ignore[attr-defined]
        except KeyError as error:
            ticket.settle(error=error)


def test_in_a_lane_there_is_one_at_a_time_and_lanes_do_not_wait_for_each_other() -> None:
    lanes, inside, most = CommitLanes(), [0, 0], [0, 0]
    lock = threading.Lock()
    both = threading.Barrier(2)

    def work(lane: int) -> None:
        with lock:
            inside[lane] += 1
            most[lane] = max(most[lane], inside[lane])
        both.wait(WAIT)  # one of the other lane is inside as well
        with lock:
            inside[lane] -= 1

    def go(lane: int) -> None:
        lanes.go(LaneTicket(Work(lane + 1, lambda: work(lane))), check_one_by_one)

    threads = [threading.Thread(target=go, args=(number % 2,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert most == [1, 1]
    assert lanes._lanes == {}, "a lane that nobody uses is forgotten"


def line_up(
    lanes: CommitLanes, threads: Sequence[threading.Thread], begun: threading.Event, go: threading.Event
) -> None:
    """The first is at work in lane 7 while all others come to wait, one after the other; then all may go."""
    threads[0].start()
    assert begun.wait(WAIT)
    for number, thread in enumerate(threads[1:], start=1):
        thread.start()
        wait_until(lambda number=number: len(lanes._lanes[7].waiting) == number)
    go.set()
    for thread in threads:
        thread.join(WAIT)


def test_those_who_have_waited_are_committed_together_and_in_order() -> None:
    lanes, groups, begun, release = CommitLanes(), list[int](), threading.Event(), threading.Event()
    order: list[int] = []

    def commit(group: Sequence[LaneTicket]) -> None:
        groups.append(len(group))
        begun.set()
        assert release.wait(WAIT)
        check_one_by_one(group)

    tickets = [LaneTicket(Work(7, lambda n=n: order.append(n) or n)) for n in range(6)]  # type: ignore[misc]
    threads = [threading.Thread(target=lanes.go, args=(ticket, commit)) for ticket in tickets]
    line_up(lanes, threads, begun, release)
    assert groups == [1, 5]
    assert order == [0, 1, 2, 3, 4, 5]
    assert [ticket.get() for ticket in tickets] == [0, 1, 2, 3, 4, 5]
    assert lanes._lanes == {}


def test_an_interrupted_leader_blocks_no_follower() -> None:
    lanes, begun, release = CommitLanes(), threading.Event(), threading.Event()

    def slow(group: Sequence[LaneTicket]) -> None:
        begun.set()
        assert release.wait(WAIT)
        if len(group) > 1:
            raise KeyboardInterrupt
        check_one_by_one(group)

    tickets, heard = [LaneTicket(Work(7)) for _ in range(3)], list[str]()

    def go(ticket: LaneTicket) -> None:
        try:
            lanes.go(ticket, slow)
            ticket.get()
            heard.append("done")
        except (KeyboardInterrupt, StoreBusy) as error:
            heard.append(type(error).__name__)

    threads = [threading.Thread(target=go, args=(ticket,)) for ticket in tickets]
    line_up(lanes, threads, begun, release)
    assert sorted(heard) == ["KeyboardInterrupt", "StoreBusy", "done"]
    assert lanes._lanes == {}


def test_lane_zero_is_free_for_all() -> None:
    lanes = CommitLanes()
    inner = LaneTicket(Work(0))
    lanes.go(LaneTicket(Work(0, lambda: lanes.go(inner, check_one_by_one))), check_one_by_one)
    assert inner.settled


def test_tasks_of_one_lane_take_turns_and_leave_threads_to_others() -> None:
    lanes = CommitLanes()
    workers, order, release = CommitThreads(lanes, 2), list[str](), threading.Event()

    def slow() -> None:
        assert release.wait(WAIT)
        order.append("slow")

    async def program() -> None:
        first = asyncio.create_task(workers.result_of(Work(1, slow), check_one_by_one))
        await asyncio.sleep(0)
        behind = [
            asyncio.create_task(workers.result_of(Work(1, lambda n=n: order.append(str(n))), check_one_by_one))  # type: ignore[misc]
            for n in range(5)
        ]
        await asyncio.sleep(0)
        await workers.result_of(Work(2, lambda: order.append("other")), check_one_by_one)
        release.set()
        await asyncio.gather(first, *behind)

    asyncio.run(program())
    workers.close()
    assert sorted(order) == ["0", "1", "2", "3", "4", "other", "slow"]
    assert order.index("other") < order.index("slow"), "the other lane had to wait"
    assert [permit for permit in order if permit.isdigit()] == ["0", "1", "2", "3", "4"]
    assert lanes._lanes == {}


def test_an_error_is_raised_where_it_is_awaited_and_ends_the_turn() -> None:
    lanes = CommitLanes()
    workers = CommitThreads(lanes, 1)

    def fail() -> None:
        raise KeyError("mine")

    async def program() -> None:
        with pytest.raises(KeyError, match="mine"):
            await workers.result_of(Work(1, fail), check_one_by_one)
        assert await workers.result_of(Work(1, lambda: 5), check_one_by_one) == 5

    asyncio.run(program())
    workers.close()


def test_a_cancelled_caller_still_waits_for_the_end() -> None:
    lanes = CommitLanes()
    workers, begun, release, done = CommitThreads(lanes, 1), threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        assert release.wait(WAIT)
        done.set()

    async def program() -> None:
        task = asyncio.create_task(workers.result_of(Work(1, work), check_one_by_one))
        while not begun.is_set():
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.sleep(0.01)
        assert not task.done()
        release.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert done.is_set()

    asyncio.run(program())
    workers.close()
