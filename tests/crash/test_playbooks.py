"""Plays that are killed at random moments come to what undisturbed ones do: results, statistics, lessons and cost."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure import Agent, AsyncAgent
from perdure.errors import PlaybookFailed
from perdure.journal import rebuild
from perdure.platform import failpoints
from perdure.store import open_store
from tests.conformance.kit import World, run_in_child, run_in_children
from tests.crash.programs import after

RATES = {"small": 0.4, "middle": 0.7, "large": 0.9}
PRICES = {"small": 0.001, "middle": 0.01, "large": 0.06}
STEPS = ("find", "read", "write")
PLAYS = 5
KILLS_MAX = 12
MOMENTS_MAX = 45
"""Failpoints that a process passes before it is killed. The whole program has some 200."""


def is_good(play: str, step: str, tier: str) -> bool:
    """Whether a simulated model can do a step of a play: the same in every process."""
    return sha256(f"{play}/{step}/{tier}".encode()).digest()[0] < 256 * RATES[tier]


def run_sync(url: str, world: World) -> None:
    with Agent("analyst", store=url) as agent:
        agent.playbooks.learn("analysis", steps=STEPS)
        for number in range(PLAYS):
            with (
                suppress(PlaybookFailed),
                agent.playbooks.run("analysis", f"p{number}", inputs={"n": number}, tiers=list(RATES)) as play,
            ):
                for step in play.steps():

                    def ask(tier: str, step: Any = step) -> dict[str, Any]:
                        world.do(f"{play.id} {step.name} {tier}")
                        play.usage(model=tier, input_tokens=len(step.render()), cost_usd=PRICES[tier])
                        return {"by": tier, "good": is_good(play.id, step.name, tier)}

                    answer = step.attempt(ask, verify=lambda answer: answer["good"])
                    play.state[step.name] = answer["by"]
                play.result = dict(play.state)


async def _run_async(url: str, world: World) -> None:
    async with AsyncAgent("analyst", store=url) as agent:
        await agent.playbooks.learn("analysis", steps=STEPS)
        for number in range(PLAYS):
            with suppress(PlaybookFailed):
                await _play(agent, f"p{number}", number, world)


async def _play(agent: AsyncAgent, id: str, number: int, world: World) -> None:
    async with agent.playbooks.run("analysis", id, inputs={"n": number}, tiers=list(RATES)) as play:
        by = {}
        async for step in play.steps():

            async def ask(tier: str, step: Any = step) -> dict[str, Any]:
                world.do(f"{id} {step.name} {tier}")
                await play.usage(model=tier, input_tokens=len(step.render()), cost_usd=PRICES[tier])
                return {"by": tier, "good": is_good(id, step.name, tier)}

            answer = await step.attempt(ask, verify=lambda answer: answer["good"])
            by[step.name] = answer["by"]
            await play.state.set(step.name, answer["by"])
        play.result = by


def run_async(url: str, world: World) -> None:
    asyncio.run(_run_async(url, world))


PROGRAMS: dict[str, Callable[[str, World], None]] = {"sync": run_sync, "async": run_async}


def outcome_of(url: str) -> dict[str, Any]:
    """Everything that the plays have come to."""
    with Agent("analyst", store=url) as agent:
        runs = {run.id: (run.status, agent.runs.get(run.id).usage.cost_usd) for run in agent.runs.list()}
        finished = [id for id, (status, _) in runs.items() if status == "finished"]
        return {
            "runs": runs,
            "results": {id: agent.runs.result(id) for id in finished},
            "report": msgspec.to_builtins(agent.playbooks.report("analysis")),
            "lessons": agent.playbooks.lessons("analysis"),
            "usage": agent.usage(),
        }


def survive(program: Callable[[], None], seed: int) -> int:
    """Kill a program at random moments until it ends by itself; return how often it was killed."""
    chance = random.Random(seed)

    def doomed(moments: int) -> None:
        failpoints.arm(after(moments))
        program()

    for kills in range(KILLS_MAX):
        status = run_in_child(partial(doomed, chance.randint(1, MOMENTS_MAX)))
        if status == 0:
            return kills
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    assert run_in_child(program) == 0
    return KILLS_MAX


def compare_killed_with_undisturbed(colour: str, seed: int, store_url: str, folder: Path) -> None:
    calm, world = World(folder / "calm"), World(folder)
    calm.path.parent.mkdir()
    calm_url = f"sqlite:///{folder}/calm.db"
    PROGRAMS[colour](calm_url, calm)  # here, so that no fork imports by itself
    kills = survive(lambda: PROGRAMS[colour](store_url, world), seed)
    assert kills >= 3, "it was hardly tried"
    assert outcome_of(store_url) == outcome_of(calm_url)
    assert set(world.read_all()) == set(calm.read_all()), "the same calls, some of them again"
    assert len(world.read_all()) <= len(calm.read_all()) + kills, "a kill repeats one call at most"
    store = open_store(store_url)
    try:
        assert not list(rebuild.check(store))
    finally:
        store.close()


@pytest.mark.parametrize("colour", PROGRAMS)
def test_killed_plays_come_to_what_undisturbed_ones_do(colour: str, store_url: str, tmp_path: Path) -> None:
    compare_killed_with_undisturbed(colour, 1, store_url, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 140))
@pytest.mark.parametrize("colour", PROGRAMS)
def test_killed_plays_come_to_what_undisturbed_ones_do_for_long(
    colour: str, seed: int, store_url: str, tmp_path: Path
) -> None:
    compare_killed_with_undisturbed(colour, seed, store_url, tmp_path)


def test_plays_side_by_side_count_every_attempt(store_url: str) -> None:
    with Agent("analyst", store=store_url) as agent:
        agent.playbooks.learn("analysis", steps=["find"])

    def program() -> None:
        with Agent("analyst", store=store_url) as agent:
            for number in range(5):
                with agent.playbooks.run("analysis", f"{os.getpid()}-{number}", tiers=["small"]) as play:
                    for step in play.steps():
                        step.attempt(lambda tier: play.usage(model=tier, cost_usd=0.001))

    assert run_in_children(3, program) == [0, 0, 0]
    with Agent("analyst", store=store_url) as agent:
        report = agent.playbooks.report("analysis")
    known = report.steps[0].tiers["small"]
    assert (report.plays, known.tries, known.successes, known.cost) == (15, 15, 15, pytest.approx(0.015))
