"""Runs that are cancelled, paused and resumed: at their boundaries, once, whoever dies meanwhile."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from perdure import Agent, AsyncAgent, Done, NotDone, PerdureError, RunWaiting
from perdure.errors import RunCancelled, RunFinished, RunNotFound, RunNotPaused, RunPaused
from perdure.platform import failpoints
from perdure.platform.failpoints import CommitMoment, Site

from .kit import World, agent_at, check_views, die, kill_at, run_in_child

Act = Callable[[Any, World], object]


def kinds(agent: Agent, run_id: str) -> list[str]:
    return [event.kind for event in agent.runs.get(run_id).events]


def items(run: Any, world: World) -> None:
    for item in run.each(["a", "b"]):
        world.do(item)


def threads(run: Any, world: World) -> None:
    with run.executor(1) as pool:
        for future in [pool.submit(run.step, world.do, name) for name in ("a", "b")]:
            future.result()


BOUNDARIES: dict[str, tuple[Act, list[str]]] = {
    "step": (lambda run, world: run.step(world.do, "a"), ["a"]),
    "effect": (lambda run, world: run.effect(world.do, "a"), []),  # heard with the intent
    "write": (lambda run, world: run.state.set("k", 1), []),
    "item": (items, ["a"]),
    "map": (lambda run, world: run.map(world.do, ["a", "b"], max_concurrency=1), ["a"]),
    "executor": (threads, ["a"]),
    "ask": (lambda run, world: run.ask("Go on?"), []),
    "event": (lambda run, world: run.wait_event("go"), []),
    "sleep": (lambda run, world: run.sleep("2h"), []),
}


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_what_is_under_way_is_recorded_and_nothing_else_begins(store_url: str, world: World, boundary: str) -> None:
    agent = agent_at(store_url)
    act, done = BOUNDARIES[boundary]
    with pytest.raises(RunCancelled, match="by ann: too dear") as told, agent.run("r") as run:
        run.step(world.do, "before")
        assert not agent.runs.cancel("r", "too dear", by="ann").obeyed
        assert not agent.runs.cancel("r", "once more", by="bob").obeyed
        try:
            act(run, world)
        except Exception as error:  # what programs say around their tools
            raise AssertionError("a cancelled run goes on") from error
        run.step(world.do, "after")
    assert isinstance(told.value, PerdureError) and (told.value.by, told.value.reason) == ("ann", "too dear")
    assert world.read_all() == ["before", *done]
    info = agent.runs.get("r")
    assert (info.status, info.error) == ("cancelled", "by ann: too dear")
    assert not info.in_doubt and not info.questions
    assert agent.runs.cancel("r").obeyed
    for again in (lambda: agent.run("r").__enter__(), lambda: agent.runs.pause("r"), lambda: agent.runs.resume("r")):
        with pytest.raises(RunCancelled, match="by ann"):
            again()
    assert kinds(agent, "r").count("RunCancelled") == 1
    check_views(agent)


def program(agent: Agent, world: World) -> Any:
    with agent.run("r") as run:
        run.step(world.do, "a")
        run.effect(world.do, "b")
        run.step(world.do, "c")
        run.result = "done"
    return agent.runs.result("r")


def test_a_paused_run_is_opened_by_nobody_and_goes_on_where_it_was(store_url: str, world: World) -> None:
    agent = agent_at(store_url)
    with pytest.raises(RunPaused, match=r"agent.runs.resume\('r'\)"), agent.run("r") as run:
        run.step(world.do, "a")
        assert not agent.runs.pause("r", by="ann").obeyed
        try:
            run.effect(world.do, "b")
        finally:
            with run.cleanup():  # the run is not over: there is nothing to undo
                run.step(world.do, "undo")
    assert agent.runs.get("r").status == "paused" and agent.runs.pause("r").obeyed
    with pytest.raises(RunPaused, match="by ann"):
        agent.run("r").__enter__()
    assert agent.runs.resume("r", by="bob").obeyed
    with pytest.raises(RunNotPaused, match="'r' is interrupted"):
        agent.runs.resume("r")
    assert program(agent, world) == "done"
    assert world.read_all() == ["a", "b", "c"]
    check_views(agent)


def test_an_order_that_is_taken_back_before_it_is_heard_is_none(store_url: str, world: World) -> None:
    agent = agent_at(store_url)
    with agent.run("r") as run:
        agent.runs.pause("r")
        assert not agent.runs.resume("r").obeyed
        run.step(world.do, "a")
        with pytest.raises(RunNotPaused):
            agent.runs.resume("r")
    assert agent.runs.get("r").status == "finished"
    check_views(agent)


def test_cleaning_up_is_allowed_when_a_run_is_cancelled_and_waiting_is_not(store_url: str, world: World) -> None:
    agent = agent_at(store_url)
    with pytest.raises(RunCancelled), agent.run("r") as run:
        agent.runs.cancel("r")
        try:
            run.step(world.do, "a")
        finally:
            with pytest.raises(RunCancelled):
                run.step(world.do, "not here")
            with run.cleanup():
                assert agent.runs.get("r").status == "cancelling"
                run.effect(world.do, "undo")
                with pytest.raises(RunCancelled):
                    run.ask("May I?")
            with pytest.raises(RunCancelled):
                run.effect(world.do, "nor here")
    assert world.read_all() == ["a", "undo"]
    check_views(agent)


def test_a_block_that_swallows_it_is_not_left_as_if_it_had_ended_well(store_url: str, world: World) -> None:
    agent = agent_at(store_url)
    with pytest.raises(RunCancelled), agent.run("r") as run:
        agent.runs.cancel("r")
        with pytest.raises(RunCancelled):
            run.step(world.do, "a")
        run.result = "well"
    with pytest.raises(KeyError), agent.run("s") as run:
        agent.runs.cancel("s")
        with pytest.raises(RunCancelled):
            run.step(world.do, "b")
        raise KeyError("as it cleaned up")
    assert [run.status for run in agent.runs.list()] == ["cancelled", "cancelled"]
    assert kinds(agent, "s")[-2:] == ["RunFailed", "RunCancelled"]


def make_crashed_run(store_url: str) -> None:
    def doomed() -> None:
        with agent_at(store_url).run("r"):
            die()

    run_in_child(doomed)


def leave_run_by(error: BaseException) -> Callable[[str], None]:
    def leave(store_url: str) -> None:
        with pytest.raises(type(error)), agent_at(store_url).run("r"):
            raise error

    return leave


def make_waiting_run(store_url: str) -> None:
    with pytest.raises(RunWaiting), agent_at(store_url).run("r", wait=0) as run:
        run.ask("Well?")


@pytest.mark.parametrize(
    "leave", [make_crashed_run, leave_run_by(KeyError()), leave_run_by(KeyboardInterrupt()), make_waiting_run]
)
def test_a_run_that_nobody_has_open_obeys_at_once(store_url: str, leave: Callable[[str], None]) -> None:
    leave(store_url)
    agent = agent_at(store_url)
    before = agent.runs.get("r").status
    assert agent.runs.pause("r").obeyed
    with pytest.raises(RunPaused):
        agent.run("r").__enter__()
    assert agent.runs.resume("r").obeyed and agent.runs.pause("r").obeyed
    assert agent.runs.cancel("r", "in vain", by="ann").obeyed
    with pytest.raises(RunCancelled, match="in vain"):
        agent.run("r").__enter__()
    assert before in ("crashed", "failed", "interrupted", "waiting")
    check_views(agent)


def test_what_cannot_be_is_said(store_url: str) -> None:
    agent = agent_at(store_url)
    with agent.run("r"):
        pass
    for order in (agent.runs.cancel, agent.runs.pause, agent.runs.resume):
        with pytest.raises(RunFinished):
            order("r")
        with pytest.raises(RunNotFound):
            order("none")


HEARD_ANEW = [(Site.ORDER, moment) for moment in (CommitMoment.BEFORE, CommitMoment.BEGUN, CommitMoment.WRITTEN)]
"""The order was not given: the next process gives it."""


@pytest.mark.parametrize(
    ("site", "moment"),
    [
        *((Site.ORDER, moment) for moment in CommitMoment),
        *((Site.RUN_END, moment) for moment in (CommitMoment.BEFORE, CommitMoment.WRITTEN, CommitMoment.AFTER)),
        *((Site.CLEANUP, moment) for moment in (CommitMoment.WRITTEN, CommitMoment.AFTER)),
        (Site.EFFECT_OUTCOME, CommitMoment.BEFORE),
    ],
)
def test_a_kill_at_any_moment_loses_no_order_and_doubles_nothing(
    store_url: str, world: World, site: Site, moment: CommitMoment
) -> None:
    """The run is cancelled in its first step, and cleans up with an effect, whatever it takes."""

    def booking(agent: Agent) -> None:
        def give_up() -> None:
            agent.runs.cancel("r", "too dear")

        with agent.run("r") as run:
            try:
                run.step(give_up)
                run.step(world.do, "never")
            finally:
                with run.cleanup():
                    run.effect(world.do, "undo", check=lambda *_: Done() if world.count("undo") else NotDone)

    agent_at(store_url).state.set("a", "b", 1)  # the store is there
    kill_at(lambda: booking(agent_at(store_url)), site, moment)
    agent = agent_at(store_url)
    with pytest.raises(RunCancelled, match="too dear"):
        booking(agent)
    with pytest.raises(RunCancelled, match="too dear"):
        booking(agent)
    assert world.count("never") == 0
    # Once it has begun to clean up that is gone on with; before that, a run whose process died ends at once.
    begun = site in (Site.RUN_END, Site.EFFECT_OUTCOME) or (site, moment) == (Site.CLEANUP, CommitMoment.AFTER)
    assert world.count("undo") == (1 if begun or (site, moment) in HEARD_ANEW else 0)
    assert kinds(agent, "r").count("RunCancelled") == 1 and agent.runs.get("r").status == "cancelled"
    check_views(agent)


def test_a_run_that_was_cancelled_after_its_last_step_does_not_end_well_when_it_is_resumed(store_url: str) -> None:
    """All of it is replayed then, and nothing begins that would be stopped."""

    def booking(agent: Agent) -> None:
        with agent.run("r") as run:
            try:
                agent.runs.cancel("r", "too dear")
                run.step(str.upper, "under way")
            finally:
                with run.cleanup():
                    run.state["undone"] = True

    kill_at(lambda: booking(agent_at(store_url)), Site.RUN_END, CommitMoment.BEFORE)
    agent = agent_at(store_url)
    with pytest.raises(RunCancelled, match="too dear"):
        booking(agent)
    assert agent.runs.get("r").status == "cancelled"
    check_views(agent)


@pytest.mark.parametrize(
    ("nth", "moment"),
    [(1, CommitMoment.WRITTEN), (1, CommitMoment.AFTER), (2, CommitMoment.WRITTEN), (2, CommitMoment.AFTER)],
)
def test_a_kill_around_a_pause_leaves_it_paused_or_not_and_whole(
    store_url: str, world: World, moment: CommitMoment, nth: int
) -> None:
    """The first order is for a run that is open, the second one for one that nobody has open."""

    def ordering() -> None:
        agent = agent_at(store_url)
        with pytest.raises(RunPaused), agent.run("r") as run:
            agent.runs.pause("r")
            run.step(world.do, "a")
        agent.runs.resume("r")

    kill_at(ordering, Site.ORDER, moment, nth)
    agent = agent_at(store_url)
    try:
        program(agent, world)
    except RunPaused:
        assert agent.runs.resume("r").obeyed
        program(agent, world)
    assert world.read_all() == ["a", "b", "c"]
    check_views(agent)


def test_a_resume_that_comes_while_a_pause_is_written_need_not_be_said_again(store_url: str, world: World) -> None:
    agent = agent_at(store_url)

    def resume(site: Site, moment: CommitMoment) -> None:
        if (site, moment) == (Site.RUN_END, CommitMoment.BEFORE):
            failpoints.arm(None)
            assert not agent.runs.resume("r", by="ann").obeyed

    with pytest.raises(RunPaused), agent.run("r") as run:
        agent.runs.pause("r")
        failpoints.arm(resume)
        run.step(world.do, "a")
    assert kinds(agent, "r")[-2:] == ["RunPaused", "RunReleased"]
    assert (agent.runs.get("r").status, agent.runs.get("r").error) == ("interrupted", "resumed by ann")
    program(agent, world)
    assert world.read_all() == ["a", "b", "c"]
    check_views(agent)


def test_another_process_cancels_an_async_step_under_way_and_lets_an_effect_end(store_url: str, world: World) -> None:
    agent = AsyncAgent("tester", store=store_url)
    began = threading.Event()

    def cancel_when(name: str) -> threading.Thread:
        def canceller() -> None:
            agent_at(store_url).runs.cancel(name, by="ann")

        def when_begun() -> None:
            began.wait()
            began.clear()
            assert run_in_child(canceller) == 0

        thread = threading.Thread(target=when_begun)
        thread.start()
        return thread

    async def for_ever() -> None:
        began.set()
        try:
            await asyncio.sleep(600)
        finally:
            world.do("ended")

    async def until_told() -> None:
        began.set()
        while not world.count("told"):
            await asyncio.sleep(0.01)
        world.do("done")

    async def main() -> None:
        teller = cancel_when("step")
        with pytest.raises(RunCancelled):
            async with agent.run("step") as run:
                try:
                    await run.step(for_ever)
                except Exception as error:
                    raise AssertionError("a cancelled run goes on") from error
        teller.join()
        assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]
        teller = cancel_when("effect")
        with pytest.raises(RunCancelled):
            async with agent.run("effect") as run:
                effect = asyncio.create_task(run.effect(until_told))
                await asyncio.to_thread(teller.join)
                world.do("told")
                await effect
        assert not (await agent.runs.get("effect")).in_doubt
        with pytest.raises(RunCancelled):
            async with agent.run("several") as run:
                await agent.runs.cancel("several")
                try:
                    await asyncio.gather(run.step(str.upper, "a"), run.map(str.upper, "bcd", max_concurrency=1))
                finally:
                    async with run.cleanup():
                        await run.step(world.do, "undo")
        await agent.close()

    asyncio.run(main())
    assert world.read_all() == ["ended", "told", "done", "undo"]


def test_the_parts_of_a_run_are_told_the_same(store_url: str, world: World) -> None:
    agent, other = agent_at(store_url), agent_at(store_url, "other")
    with pytest.raises(RunCancelled, match="'outer' was cancelled"), agent.run("outer") as outer:
        with agent.run("done"):
            pass
        with pytest.raises(KeyError), other.run("failed"):
            raise KeyError
        with agent.run("inner") as inner:
            given = agent.runs.cancel("outer", "enough", by="ann")
            assert set(given.parts) == {"failed", "inner"} and not given.obeyed
            inner.step(world.do, "a")
        outer.step(world.do, "b")
    assert world.read_all() == ["a"]
    found = {run.id: run.status for run in (*agent.runs.list(), *other.runs.list())}
    assert found == {"outer": "cancelled", "inner": "cancelled", "failed": "cancelled", "done": "finished"}
    assert agent.runs.get("inner").error == "by ann: with 'outer': enough"
    check_views(agent)


def test_a_cancelled_part_is_an_error_of_its_parent(store_url: str, world: World) -> None:
    agent = agent_at(store_url)
    with agent.run("outer") as outer:
        try:
            with agent.run("inner") as inner:
                agent.runs.cancel("inner")
                inner.step(world.do, "a")
        except PerdureError as error:
            outer.result = error.message
    assert "'inner' was cancelled" in agent.runs.result("outer")


def work_until(agent: Agent, over: Callable[[], object]) -> None:
    """A worker is at it until that has come."""
    worker = agent.worker()
    thread = threading.Thread(target=worker.run)
    thread.start()
    while not over() and thread.is_alive():
        time.sleep(0.005)
    worker.drain()
    thread.join()


def with_tasks(agent: Agent, world: World) -> Any:
    @agent.task
    def errand(run: Any, what: str) -> str:
        run.step(world.do, what)
        if what == "asks":
            errand.options(delay="1h").start("part", what="part")
            run.ask("Well?")
        if what == "dies":
            agent.runs.cancel(run.id, by="ann")
            die()
        return what

    return errand


def test_workers_begin_no_cancelled_run_and_no_paused_one_until_it_is_resumed(store_url: str, world: World) -> None:
    agent = agent_at(store_url)
    errand = with_tasks(agent, world)
    for name in ("never", "later", "asks"):
        errand.start(name, what=name)
    assert agent.runs.cancel("never", "not wanted", by="ann").obeyed
    assert agent.runs.pause("later").obeyed
    work_until(agent, lambda: agent.runs.list(status="waiting"))
    with pytest.raises(RunNotPaused, match="queued"):
        agent.runs.resume("part")
    assert agent.runs.cancel("asks").parts == ("part",)
    assert agent.runs.resume("later").obeyed
    work_until(agent, lambda: world.count("later"))
    assert errand.result("later") == "later"
    with pytest.raises(PerdureError, match="cancelled by ann: not wanted"):
        errand.result("never", timeout=1)
    assert world.read_all() == ["asks", "later"]
    found = {run.id: run.status for run in agent.runs.list()}
    assert found == {"never": "cancelled", "asks": "cancelled", "part": "cancelled", "later": "finished"}
    check_views(agent)


def test_a_worker_that_dies_before_it_obeys_is_followed_by_one_that_does(store_url: str, world: World) -> None:
    def doomed() -> None:
        other = agent_at(store_url)
        with_tasks(other, world)
        work_until(other, lambda: False)

    agent = agent_at(store_url)
    with_tasks(agent, world).start("dies", what="dies")
    run_in_child(doomed)
    work_until(agent, lambda: agent.runs.get("dies").status == "cancelled")
    assert world.read_all() == ["dies"] and agent.runs.get("dies").error == "by ann"
    check_views(agent)
