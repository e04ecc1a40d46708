"""Permits in the order of asking, and lanes in which one goes after the other."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from perdure.store.gate import Gate
from perdure.store.lanes import Lanes, Workers

WAIT = 20.0
LONG = time.monotonic() + 3600


def until(condition: object) -> None:
    deadline = time.monotonic() + WAIT
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_there_are_so_many_permits_and_no_more() -> None:
    gate = Gate(2)
    assert gate.enter(LONG)
    assert gate.enter(LONG)
    assert not gate.enter(time.monotonic())
    gate.leave()
    assert gate.enter(time.monotonic())


def test_who_gave_up_is_not_served() -> None:
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
    until(lambda: len(gate._waiting) == 1)
    assert not entered.is_set()
    gate.leave()
    assert entered.wait(WAIT)
    thread.join(WAIT)


def test_in_a_lane_there_is_one_at_a_time_and_lanes_do_not_wait_for_each_other() -> None:
    lanes, inside, most = Lanes(), [0, 0], [0, 0]
    lock = threading.Lock()
    both = threading.Barrier(2)

    def work(lane: int) -> None:
        with lanes.lane(lane + 1):
            with lock:
                inside[lane] += 1
                most[lane] = max(most[lane], inside[lane])
            both.wait(WAIT)  # one of the other lane is inside as well
            with lock:
                inside[lane] -= 1

    threads = [threading.Thread(target=work, args=(number % 2,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert most == [1, 1]
    assert lanes._gates == {}, "a lane that nobody uses is forgotten"


def test_lane_zero_is_free_for_all() -> None:
    lanes = Lanes()
    with lanes.lane(0), lanes.lane(0):
        pass


def test_tasks_of_one_lane_take_turns_and_leave_threads_to_others() -> None:
    lanes = Lanes()
    workers, order, release = Workers(lanes, 2), list[str](), threading.Event()

    def slow() -> None:
        assert release.wait(WAIT)
        order.append("slow")

    async def program() -> None:
        first = asyncio.create_task(workers.result_of(1, slow))
        behind = [asyncio.create_task(workers.result_of(1, lambda n=n: order.append(str(n)))) for n in range(5)]  # type: ignore[misc]
        await asyncio.sleep(0)
        await workers.result_of(2, lambda: order.append("other"))
        release.set()
        await asyncio.gather(first, *behind)

    asyncio.run(program())
    workers.close()
    assert order == ["other", "slow", "0", "1", "2", "3", "4"]
    assert lanes._gates == {}


def test_an_error_is_raised_where_it_is_awaited_and_ends_the_turn() -> None:
    lanes = Lanes()
    workers = Workers(lanes, 1)

    def fail() -> None:
        raise KeyError("mine")

    async def program() -> None:
        with pytest.raises(KeyError, match="mine"):
            await workers.result_of(1, fail)
        assert await workers.result_of(1, lambda: 5) == 5

    asyncio.run(program())
    workers.close()


def test_who_is_cancelled_still_waits_for_the_end() -> None:
    lanes = Lanes()
    workers, begun, release, done = Workers(lanes, 1), threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        assert release.wait(WAIT)
        done.set()

    async def program() -> None:
        task = asyncio.create_task(workers.result_of(1, work))
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
