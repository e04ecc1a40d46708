"""Tasks: queued once, done once, by whichever worker is alive; parked while they wait, and woken in time."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import settings

from perdure import Agent, AsyncAgent, Done, NotDone
from perdure.errors import (
    InputChanged,
    NotDurable,
    PerdureError,
    RunNotFound,
    StorageFull,
    StoreBusy,
    StoreUnavailable,
    TaskFailed,
    WaitTimeout,
)
from perdure.platform.failpoints import CommitMoment, Site
from perdure.values.limits import DEATHS_MAX, DEATHS_SUSPECT
from perdure.work.tasks.definition import tasks_of

from .kit import PATIENCE, World, agent_at, check_views, die, kill_at, run_in_child, wait_until


def rows(agent: Agent | AsyncAgent) -> dict[str, str]:
    """Which runs are in which state."""
    return {row[1]: row[7] for row in agent._engine.store.read("all_tasks")}


@contextmanager
def run_worker(agent: Agent, **options: Any) -> Iterator[Any]:
    """A worker beside the test."""
    worker = agent.worker(**options)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield worker
    finally:
        worker.drain()
        thread.join(PATIENCE)
        assert not thread.is_alive()


def work_off(agent: Agent) -> None:
    """Work until nothing is left that could be done now."""
    with run_worker(agent):
        wait_until(lambda: not {"queued", "running"} & set(rows(agent).values()))


class Office:
    """The tasks of the tests; what they do outside is counted."""

    def __init__(self, agent: Agent, world: World) -> None:
        self.agent = agent
        self.world = world
        office = self

        def booked(what: str, *, key: str) -> Any:
            return Done(what) if world.count(f"book {what}") else NotDone

        @agent.effect(check=booked)
        def book(what: str, *, key: str) -> str:
            world.do(f"book {what}")
            return what

        @agent.step
        def look(what: str) -> str:
            return what.upper()

        @agent.task
        def trip(run: Any, what: str) -> str:
            found = look(what)
            seat = run.ask("seat?")
            book(f"{found} {seat}")
            run.wait_event("paid")
            return f"{found} {seat}"

        @agent.task
        def plan(run: Any, what: str) -> str:
            trip.start(f"trip to {what}", what)
            return f"planned {trip.result(f'trip to {what}')}"

        @agent.task(retries=1, backoff=0.01)
        def breaks(how: str) -> None:
            world.do(how)
            if world.count(how) < 4:
                raise ValueError(how)

        self.trip, self.plan, self.breaks, self.look, self.office = trip, plan, breaks, look, office

    def attend(self) -> None:
        """Answer whoever asks, while a worker works, until all is done."""
        with run_worker(self.agent):
            wait_until(self._attend_once)

    def _attend_once(self) -> bool:
        for run_id in [name for name, state in rows(self.agent).items() if state == "parked"]:
            for question in self.agent.runs.get(run_id).questions:
                if question.kind == "ask" and not self._is_answered(question.about, run_id):
                    self.agent.runs.answer(run_id, "12A")
                elif question.kind == "event" and not self._is_sent(run_id):
                    self.agent.send_event(run_id, "paid")
        return not rows(self.agent)

    def _is_answered(self, about: int, run_id: str) -> bool:
        stream = self.agent.runs.get(run_id).summary.stream
        return bool(self.agent._engine.store.read("get_answer", (stream, about)))

    def _is_sent(self, run_id: str) -> bool:
        engine = self.agent._engine
        return bool(engine.store.read("get_signal", (engine.stream, run_id, "paid", 1)))


def office_at(store_url: str, world: World) -> Office:
    return Office(agent_at(store_url), world)


def test_a_run_is_queued_once_and_its_result_is_there_for_everybody(store_url: str, world: World) -> None:
    office = office_at(store_url, world)
    started = office.trip.start("t", "oslo")
    assert started.id == "t" and "trip" in repr(started)
    office.trip.start("t", what="oslo")
    with pytest.raises(InputChanged):
        office.trip.start("t", "rome")
    with pytest.raises(WaitTimeout):
        office.trip.result("t", timeout=0.01)
    with pytest.raises(RunNotFound):
        office.trip.result("x")
    with pytest.raises(NotDurable, match="start"):
        office.trip("oslo")
    assert [(run.id, run.status) for run in office.agent.runs.list("queued")] == [("t", "queued")]
    office.attend()
    assert office.trip.result("t") == started.result() == "OSLO 12A"
    office.trip.start("t", "oslo")
    assert rows(office.agent) == {}
    assert office.trip.run("t", "oslo") == "OSLO 12A"
    assert world.read_all() == ["book OSLO 12A"]
    check_views(office.agent)


SITES = [Site.TASK, Site.RUN_CLAIM, Site.STEP_DONE, Site.EFFECT_INTENT, Site.EFFECT_OUTCOME, Site.WAIT_BEGIN]
PLACES = [(site, moment, 1) for site in [*SITES, Site.WAIT_END, Site.RUN_END] for moment in CommitMoment]
PLACES += [
    (site, CommitMoment.WRITTEN, nth) for site, nth in ((Site.RUN_CLAIM, 3), (Site.RUN_END, 2), (Site.RUN_END, 4))
]
PLACES += [
    (site, CommitMoment.AFTER, nth) for site, nth in ((Site.RUN_CLAIM, 4), (Site.RUN_END, 3), (Site.WAIT_END, 3))
]


if settings.get_current_profile_name() != "soak":
    PLACES = PLACES[1::3]


@pytest.mark.parametrize(("site", "moment", "nth"), PLACES)
def test_a_worker_may_be_killed_anywhere(
    store_url: str, world: World, site: Site, moment: CommitMoment, nth: int
) -> None:
    """A parent and its child, questions, an event and an effect: whoever comes next goes on, nothing is done twice."""
    agent_at(store_url).state.set("a", "b", 1)  # the store is there

    def program() -> None:
        office = office_at(store_url, world)
        office.plan.start("p", "oslo")
        office.attend()

    kill_at(program, site, moment, nth)
    office = office_at(store_url, world)
    office.plan.start("p", "oslo")
    office.attend()
    assert office.plan.result("p") == "planned OSLO 12A"
    assert world.read_all() == ["book OSLO 12A"]
    parent, child = office.agent.runs.get("p"), office.agent.runs.get("trip to oslo")
    assert child.summary.parent == parent.summary.stream
    check_views(office.agent)


def test_what_fails_is_tried_again_and_then_dead_until_somebody_says_otherwise(store_url: str, world: World) -> None:
    office = office_at(store_url, world)
    office.breaks.start("b", "no luck")
    work_off(office.agent)
    assert rows(office.agent) == {"b": "dead"} and world.count("no luck") == 2
    with pytest.raises(TaskFailed, match="no luck") as raised:
        office.breaks.result("b")
    assert isinstance(raised.value.__cause__, ValueError)
    check_views(office.agent)
    office.agent.runs.retry("b")
    check_views(office.agent)
    work_off(office.agent)
    assert world.count("no luck") == 4 and rows(office.agent) == {}
    assert office.breaks.result("b") is None
    check_views(office.agent)


@pytest.mark.parametrize("problem", [StorageFull, StoreBusy, StoreUnavailable])
def test_a_store_that_fails_is_no_failure_of_the_task(
    store_url: str, world: World, problem: type[PerdureError]
) -> None:
    agent = agent_at(store_url)

    @agent.task
    def report(topic: str) -> str:
        world.do(topic)
        if world.count(topic) < 3:
            raise problem
        return topic

    report.start("r", "rain")
    with run_worker(agent):
        assert report.result("r", timeout=PATIENCE) == "rain"
    check_views(agent)


def test_a_dead_worker_is_noticed_by_one_that_waits(store_url: str, world: World) -> None:
    agent = agent_at(store_url)

    @agent.task
    def dies(run: Any) -> str:
        world.do("try")
        if world.count("try") == 1:
            die()
        return "done"

    dies.start("d")
    status = run_in_child(lambda: agent_at_with(store_url, dies, world))
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    assert rows(agent) == {"d": "running"}
    work_off(agent)
    assert dies.result("d") == "done" and world.count("try") == 2


def agent_at_with(store_url: str, task: Any, world: World) -> None:
    agent = agent_at(store_url)
    agent.task(task.definition.call)
    work_off(agent)


def test_what_kills_its_workers_again_and_again_is_dead_and_says_where(store_url: str, world: World) -> None:
    agent = agent_at(store_url)

    def kills(run: Any) -> None:
        run.step(world.do, "step", name="first")
        world.do("try")
        die()

    agent.task(kills).start("k")
    for _ in range(DEATHS_SUSPECT + DEATHS_MAX + 1):
        run_in_child(lambda: agent_at_with(store_url, tasks_of(agent._engine)["kills"], world))
    assert rows(agent) == {"k": "running"}
    work_off(agent)
    assert rows(agent) == {"k": "dead"} and world.count("step") == 1
    with pytest.raises(TaskFailed, match=r"workers in a row .* after step first \(entry 2\)"):
        tasks_of(agent._engine)["kills"].result("k")


def test_a_run_that_waits_for_its_turn_is_not_blamed_for_the_death_of_its_worker(store_url: str) -> None:
    agent = agent_at(store_url)
    work = agent.task(lambda: "done", name="work")
    for name in ("a", "b"):
        work.start(name)

    def both_are_open() -> None:
        other = agent_at(store_url)

        @other.task(name="work")
        def dies() -> None:
            wait_until(lambda: len(other._engine.lease_keeper.open_streams) == 2 or "dead" in rows(other).values())
            die()

        work_off(other)

    for _ in range(DEATHS_SUSPECT + DEATHS_MAX - 1):
        run_in_child(both_are_open)
    work_off(agent)
    assert work.result("a") == work.result("b") == "done"


def test_priority_age_limits_and_pauses(store_url: str, world: World) -> None:
    agent = agent_at(store_url)
    most, now, wanted, lock = [0], [0], [1], threading.Lock()

    @agent.task(key="who")
    def note(n: int, who: str = "") -> None:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        world.do(str(n))
        wait_until(lambda: most[0] >= wanted[0])
        time.sleep(0.02)  # for one more, which there must not be
        with lock:
            now[0] -= 1

    for n in range(4):
        note.options(priority=n % 2).start(f"n{n}", n)
    note.options(delay="1h").start("later", 9)
    with run_worker(agent, concurrency=1):
        wait_until(lambda: set(rows(agent)) == {"later"})
    assert world.read_all() == ["1", "3", "0", "2"] and rows(agent) == {"later": "queued"}
    agent.queues.set("default", per_key=1)
    agent.queues.pause("default")
    for n in range(3):
        note.start(f"m{n}", n, "ann")
    with run_worker(agent, concurrency=3):
        time.sleep(0.1)
        assert world.count("9") == 0 and len(rows(agent)) == 4
        [queue] = agent.queues.list()
        assert (queue.queued, queue.paused, queue.rules.per_key) == (4, True, 1)
        agent.queues.resume("default")
        wait_until(lambda: set(rows(agent)) == {"later"})
    assert most == [1]
    agent.queues.set("default", concurrency=2, rate="1000/s")
    wanted[0] = 2
    for n in range(5):
        note.start(f"o{n}", n, str(n))
    with run_worker(agent, concurrency=3), run_worker(agent, concurrency=3):
        wait_until(lambda: set(rows(agent)) == {"later"})
    assert most == [2], "of both workers together"
    check_views(agent)


def test_what_is_started_in_a_step_is_queued_with_it(store_url: str, world: World) -> None:
    agent = agent_at(store_url)

    @agent.task
    def child(n: int) -> int:
        return n

    @agent.step
    def starts(fails: bool) -> None:
        child.start("c", 1)
        if fails:
            raise ValueError("fails")

    with pytest.raises(ValueError, match="fails"), agent.run("r"):
        starts(True)
    assert rows(agent) == {}
    with agent.run("r2"):
        starts(False)
        child.start("c2", 2)
        with pytest.raises(InputChanged):
            child.start("c", 5)
    assert set(rows(agent)) == {"c", "c2"}
    check_views(agent)


def test_code_that_catches_everything_is_parked_all_the_same(store_url: str, world: World) -> None:
    agent = agent_at(store_url)

    @agent.task
    def stubborn(run: Any) -> Any:
        for _ in range(3):
            try:
                return run.ask("really?")
            except BaseException:
                run_on = True
        try:
            run.state["x"] = 1
        except BaseException:
            run_on = True
        return "swallowed" if run_on else ""

    stubborn.start("s")
    work_off(agent)
    assert rows(agent) == {"s": "parked"} and agent.runs.get("s").status == "waiting"
    agent.runs.answer("s", "yes")
    work_off(agent)
    assert stubborn.result("s") == "yes"


def test_a_drained_worker_leaves_its_runs_to_others(store_url: str, world: World) -> None:
    agent = agent_at(store_url)
    begun = threading.Event()

    @agent.task
    def long(run: Any) -> int:
        for n in range(1000):
            run.step(world.do, f"{n}", name="one")
            begun.set()
            if world.count("free"):
                return n
        return 0

    long.start("l")
    with run_worker(agent):
        assert begun.wait(PATIENCE)
    assert rows(agent) == {"l": "queued"} and agent.runs.get("l").status == "interrupted"
    world.do("free")
    work_off(agent)
    done = world.read_all()
    assert len(done) == len(set(done))  # no step was done twice
    check_views(agent)


async def test_branches_of_a_run_end_what_they_do_before_it_is_parked(store_url: str, world: World) -> None:
    agent = AsyncAgent("tester", store=store_url)

    @agent.effect
    async def pay(what: str) -> str:
        await asyncio.sleep(0.05)
        world.do(what)
        return what

    @agent.task
    async def both(run: Any) -> Any:
        async def pays() -> list[str]:
            return [await pay("a"), await pay("b")]

        async with asyncio.TaskGroup() as group:
            paid, asked = group.create_task(pays()), group.create_task(run.ask("go on?"))
        return [*paid.result(), asked.result()]

    await both.start("x")
    worker = agent.worker()
    working = asyncio.create_task(worker.run())
    while rows(agent) != {"x": "parked"}:
        await asyncio.sleep(0.01)
    assert world.read_all() == ["a", "b"] and (await agent.runs.get("x")).in_doubt == []
    await agent.runs.answer("x", "yes")
    assert await both.result("x", timeout=PATIENCE) == ["a", "b", "yes"]
    worker.drain()
    await working
    check_views(agent)
