"""The fencing number that a body is handed: a later holder of the run has a larger one."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from typing import Any

import pytest

from perdure import Agent, AsyncAgent, Done, Fence, NotDone, PerdureError, RunBusy
from perdure.errors import Diverged

from .kit import World, agent_at, die, expire_leases, fork_program, run_in_child, wait_until


def make_payment(store_url: str, world: World, *, dies: bool) -> Any:
    agent = agent_at(store_url)

    @agent.effect(check=lambda amount, key: Done("paid") if world.count("paid") else NotDone)
    def pay(amount: int, *, key: str, fence: int) -> str:
        world.do(f"{key} {fence}")
        if dies:
            die()
        world.do("paid")
        return "paid"

    with agent.run("r") as run:
        run.result = pay(5)
    return run.result


def test_an_attempt_after_a_takeover_has_a_larger_number(store_url: str, world: World) -> None:
    for _ in range(2):
        assert run_in_child(lambda: make_payment(store_url, world, dies=True)) == 9
    assert make_payment(store_url, world, dies=False) == "paid"
    told = [line.split() for line in world.read_all() if line != "paid"]
    keys, fences = zip(*told, strict=True)
    assert len(set(keys)) == 1
    assert list(fences) == sorted(set(fences), key=int) and len(fences) == 3


def test_an_outside_that_keeps_the_largest_number_refuses_a_late_call(store_url: str, world: World) -> None:
    """What a system can do with it: the first holder's call arrives after the second holder's."""
    largest: list[int] = [0]

    def accept(fence: int) -> bool:
        late = fence < largest[0]
        largest[0] = max(largest[0], fence)
        return not late

    assert run_in_child(lambda: make_payment(store_url, world, dies=True)) == 9
    make_payment(store_url, world, dies=False)
    first, second = (int(line.split()[1]) for line in world.read_all() if line != "paid")
    assert accept(second) and not accept(first)


def test_the_fence_is_passed_where_asked_for_and_identifies_no_call(store_url: str) -> None:
    agent, seen = agent_at(store_url), list[Any]()

    @agent.effect
    def annotated(amount: int, number: Fence = Fence(0)) -> None:
        seen.append(number)

    @agent.effect
    def given(*, key: str, fence: int) -> None:
        seen.append(fence)

    @agent.step
    def stepped(*, fence: int) -> None:
        seen.append(fence)

    for _ in range(2):
        with agent.run("r"):
            annotated(5)
            given()
            stepped(fence=7)
        if len(seen) == 3:
            assert seen[0] == seen[1] > 0 and seen[2] == 7
    assert len(seen) == 3, "matched on replay"


def test_a_number_of_the_callers_is_an_argument(store_url: str) -> None:
    agent = agent_at(store_url)

    @agent.effect
    def move(*, fence: int) -> None: ...

    def program(fence: int, *, broken: bool) -> None:
        with agent.run("r"):
            move(fence=fence)
            if broken:
                raise ConnectionError

    with pytest.raises(ConnectionError):
        program(1, broken=True)
    with pytest.raises(Diverged):
        program(2, broken=False)
    program(1, broken=False)


async def test_under_asyncio_and_outside_of_a_run(store_url: str) -> None:
    agent = AsyncAgent("tester", store=store_url)

    @agent.effect(outside="allow")
    async def pay(*, key: str, fence: int) -> int:
        return fence

    with pytest.warns(UserWarning, match="outside of a run"):
        assert await pay() == 0
    async with agent.run("r"):
        assert await pay() > 0


def test_a_process_stopped_in_a_body_acts_late_with_an_old_token(
    store_url: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can keep it from acting. What it has begun with tells it apart."""

    def stopped() -> None:
        # Elsewhere: nobody can look at this process, so its lease and the timeout decide.
        monkeypatch.setattr("perdure.platform.process._namespace", lambda pid: "pid:[elsewhere]")
        agent = agent_at(store_url)

        @agent.effect(name="pay", timeout=0.5)
        def pay(*, key: str, fence: int) -> None:
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # or the thread may act before it stops
            world.do(f"{key} {fence}")

        with suppress(PerdureError), agent.run("r"):
            pay()
        wait_until(lambda: len(world.read_all()) == 2)

    pid = fork_program(stopped)
    assert os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1])
    try:
        expire_leases(store_url)
        monkeypatch.setattr("perdure.run.doubt.LEASE_MS", 50)
        agent = agent_at(store_url)

        @agent.effect(name="pay", timeout=60, check=lambda key: NotDone)
        def pay(*, key: str, fence: int) -> None:
            world.do(f"{key} {fence}")

        wait_until(lambda: open_and_pay(agent, pay))
    finally:
        os.kill(pid, signal.SIGCONT)
        assert os.waitpid(pid, 0)[1] == 0
    [(key, fence), (late_key, late_fence)] = [line.split() for line in world.read_all()]
    assert key == late_key and int(late_fence) < int(fence)


def open_and_pay(agent: Agent, pay: Any) -> bool:
    try:
        with agent.run("r"):
            pay()
    except RunBusy:
        return False
    return True
