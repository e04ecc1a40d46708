"""Leases and fences: who may write to a run, in this process and in others."""

from __future__ import annotations

import os
import threading

import pytest

from perdure import Agent, RunBusy
from perdure.errors import LeaseLost
from perdure.platform import failpoints
from perdure.platform.failpoints import CommitMoment, Site
from perdure.records import RunResumed

from .kit import World, agent_at, die, lose_lease, run_in_child


def test_the_fence_is_compared_with_every_write(store_url: str, world: World) -> None:
    # The old holder's next entry would fit the chain: nothing but the fence stands between it and the journal.
    agent = agent_at(store_url)

    def program() -> None:
        with agent.run("r") as run:
            run.state["mine"] = 1
            lose_lease(store_url, "r")
            with pytest.raises(LeaseLost):
                run.state["mine"] = 2
            with pytest.raises(LeaseLost):
                run.step(lambda: 1, name="one")
            with pytest.raises(LeaseLost):
                run.effect(lambda: world.do("paid"), name="pay")

    with pytest.raises(LeaseLost):
        program()
    info = agent.runs.get("r")
    assert (info.state, len(info.events), world.read_all()) == ({"mine": 1}, 2, [])


def test_every_takeover_has_a_fence_of_its_own(store_url: str) -> None:
    for _ in range(3):
        assert run_in_child(lambda: agent_at(store_url).run("r").__enter__() and die()) == 9
    with agent_at(store_url).run("r"):
        pass
    entries = [event.record for event in agent_at(store_url).runs.get("r").events]
    assert [entry.fence for entry in entries if isinstance(entry, RunResumed)] == [2, 3, 4]


@pytest.mark.parametrize("how", ["finished", "failed", "interrupted"])
def test_a_run_that_ended_is_free_while_its_process_lives_on(store_url: str, how: str) -> None:
    ready, release = os.pipe(), os.pipe()
    leave = {"finished": None, "failed": ValueError("stop"), "interrupted": KeyboardInterrupt()}[how]

    def use_and_live_on() -> None:
        agent = agent_at(store_url)
        try:
            with agent.run("r"):
                if leave is not None:
                    raise leave
        except (ValueError, KeyboardInterrupt):
            pass
        os.write(ready[1], b"x")
        os.read(release[0], 1)

    thread = threading.Thread(target=lambda: run_in_child(use_and_live_on))
    thread.start()
    os.read(ready[0], 1)
    try:
        agent = agent_at(store_url)
        assert agent.runs.get("r").status == how
        assert agent.runs.get("r").summary.holder == ""
        with agent.run("r") as run:
            assert run.resumed
    finally:
        os.write(release[1], b"x")
        thread.join()


def test_a_run_is_busy_in_its_process_for_an_agent_of_another_durability(store_url: str) -> None:
    # Two doors to one file in one process: each has a holder of its own, and both are alive.
    with agent_at(store_url).run("r") as run:
        with (
            pytest.raises(RunBusy, match="this process"),
            Agent("tester", store=store_url, durability="process").run("r"),
        ):
            pass
        run.state["mine"] = 1


def test_a_process_suspended_between_intent_and_body_does_not_act(store_url: str, world: World) -> None:
    agent = agent_at(store_url)

    def sleep_too_long(site: Site, moment: CommitMoment) -> None:
        if (site, moment) == (Site.EFFECT_INTENT, CommitMoment.AFTER):
            agent._engine.lease_keeper._deadline = 0
            lose_lease(store_url, "r")

    failpoints.arm(sleep_too_long)
    try:
        with pytest.raises(LeaseLost), agent.run("r") as run:
            run.effect(lambda: world.do("paid"), name="pay")
    finally:
        failpoints.arm(None)
    assert world.read_all() == []


def test_an_old_deadline_alone_loses_nothing(store_url: str, world: World) -> None:
    agent = agent_at(store_url)
    with agent.run("r") as run:
        agent._engine.lease_keeper._deadline = 0
        run.effect(lambda: world.do("paid"), name="pay")
        assert not agent._engine.lease_keeper.has_expired()
    assert world.read_all() == ["paid"]
