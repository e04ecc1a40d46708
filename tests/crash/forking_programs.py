"""Programs that fork, that get signals in several tasks, and that run out of disk."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from perdure import Agent, AsyncAgent, Done, NotDone
from perdure.errors import PerdureError, StorageFull, StoreFenced, StoreForked
from perdure.platform import failpoints
from perdure.store import open_store
from perdure.values import locks
from tests.crash.child_programs import open_agent
from tests.crash.colours import Palette, enter, settle
from tests.crash.stores import store_of
from tests.crash.waiting import wait_for
from tests.crash.world import World

FULL = 28
"""The exit code of a program whose disk is full."""

CHILD_SECONDS_MAX = 60.0
"""How long a forked child may take; on a busy machine it takes a second."""

# -- os.fork() --------------------------------------------------------------------------------------------------


def family(folder: str, leaving: str) -> None:
    """A run is open, the process forks, the child tries everything, and the parent goes on."""
    world, agent = World(folder), open_agent(folder)

    @agent.step
    def look(number: int) -> int:
        world.note("body", f"look-{number}")
        return number

    with agent.run("parent") as run:
        look(1)
        run.state["before"] = 1
        pid = os.fork()
        if pid == 0:
            _try_everything(folder, agent, run, look)
            if leaving == "exit":
                sys.exit(0)  # through the with block and everything that was registered to run at exit
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        world.note("child", str(os.waitstatus_to_exitcode(status)))
        look(2)
        run.effect(lambda *, key: world.act("booked", key), name="book")
        run.state["after"] = 2
        run.result = sorted(run.state)
    agent.close()


def _try_everything(folder: str, agent: Agent, run: Any, look: Callable[[int], int]) -> None:
    attempts: dict[str, Callable[[], Any]] = {
        "step": lambda: look(3),
        "write": lambda: run.state.set("stolen", 1),
        "event": lambda: run.event("STOLEN"),
        "effect": lambda: run.effect(lambda: World(folder).act("stolen", "none"), name="steal"),
        "read": agent.runs.list,
        "run": lambda: agent.run("stolen").__enter__(),
        "answer": lambda: agent.runs.answer("parent", retry=True),
    }
    for name, attempt in attempts.items():
        try:
            attempt()
        except StoreForked:
            World(folder).note("refused", name)
    own = open_agent(folder)
    with own.run("child") as mine:
        mine.result = mine.step(lambda: "made in the child", name="make")
    own.close()


def orphan(folder: str) -> None:
    """Fork in the middle of a commit, as a thread may at any time; die there, and leave the child behind."""

    def fork_and_die(site: failpoints.Site, moment: failpoints.CommitMoment) -> None:
        if (site, moment) == (failpoints.Site.STEP_DONE, failpoints.CommitMoment.WRITTEN):
            pid = os.fork()
            if pid == 0:
                signal.pause()
            (Path(folder) / "orphan").write_text(str(pid))
            os.kill(os.getpid(), signal.SIGKILL)

    with open_agent(folder).run("parent") as run:
        failpoints.arm(fork_and_die)
        run.step(lambda: 1, name="one")


def outlived(folder: str) -> None:
    """The child opens the store too; the parent closes it as if it were the last, and dies; the child writes again."""
    agent = open_agent(folder)
    agent.state.set("a", "parent", 1)
    closed, closing = os.pipe()
    opened, opening = os.pipe()
    if os.fork() == 0:
        os.close(closing)
        own = open_agent(folder)
        own.state.set("a", "first", 1)
        os.write(opening, b"!")
        os.read(closed, 1)  # the parent is dead
        own.state.set("a", "second", 2)
        World(folder).note("acknowledged", "second")
        os.kill(os.getpid(), signal.SIGKILL)
    os.read(opened, 1)
    agent.close()
    os.kill(os.getpid(), signal.SIGKILL)


def torn(folder: str) -> None:
    """Fork in the middle of a commit; the child tries to use the store all the same."""
    world, agent = World(folder), open_agent(folder)
    agent.state.set("a", "before", 1)

    def fork(_: object) -> str:
        pid = os.fork()
        if pid == 0:
            try:
                open_agent(folder).state.set("a", "child", 1)
                world.note("child", "wrote")
            except StoreForked as error:
                world.note("child", "refused" if "spawn" in error.hint else error.hint)
            os._exit(0)
        os.waitpid(pid, 0)
        return "whole"

    agent.state.update("a", "forked", fork)
    agent.state.set("a", "after", 2)
    agent.close()


def nursery(folder: str, children: int) -> None:
    """Threads write, read, open, close and forget stores; meanwhile children are forked that use one of their own."""
    done = threading.Event()
    busy = f"sqlite:///{folder}/busy.db"
    jobs = [_write, _write, _read, _come_and_go, _forget]
    threads = [threading.Thread(target=job, args=(folder, busy, done), daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    pids = [_child(folder) for _ in range(children)]
    statuses = [_status(pid) for pid in pids]
    done.set()
    for thread in threads:
        thread.join()
    World(folder).note("statuses", *map(str, statuses))


def _child(folder: str) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of exactly this
        pid = os.fork()
    if pid == 0:
        own = open_agent(folder)
        own.state.incr("a", "born")
        own.close()
        os._exit(0)
    time.sleep(0.003)
    return pid


def _status(pid: int) -> int:
    """The exit code of a child. A child that hangs, perhaps before os.fork() has returned there, is killed."""
    deadline = time.monotonic() + CHILD_SECONDS_MAX
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            break
        time.sleep(0.002)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def locked(folder: str) -> None:
    """A thread holds every lock of the process while another one forks."""
    agent = open_agent(folder)
    agent.state.set("a", "parent", 1)
    holding, done = threading.Event(), threading.Event()

    def hold() -> None:
        with ExitStack() as held:
            for lock in list(locks._made):
                held.enter_context(lock)
            holding.set()
            done.wait()

    holder = threading.Thread(target=hold, daemon=True)
    holder.start()
    holding.wait()
    status = _status(_child(folder))
    done.set()
    holder.join()
    agent.close()
    World(folder).note("statuses", str(status))


def _write(folder: str, busy: str, done: threading.Event) -> None:
    agent = Agent("victim", store=busy, durability="process")
    while not done.is_set():
        agent.state.incr("a", "n")
    agent.close()


def _read(folder: str, busy: str, done: threading.Event) -> None:
    agent = Agent("victim", store=busy, durability="process")
    while not done.is_set():
        agent.state.get("a", "n")
    agent.close()


def _come_and_go(folder: str, busy: str, done: threading.Event) -> None:
    while not done.is_set():
        agent = Agent("victim", store=f"sqlite:///{folder}/door.db", durability="process")
        agent.state.get("a", "n")
        agent.close()


def _forget(folder: str, busy: str, done: threading.Event) -> None:
    """Stores that nobody closes: the collector does."""
    while not done.is_set():
        open_store(f"sqlite:///{folder}/forgotten.db", durability="process").read("last_location")


# -- signals ------------------------------------------------------------------------------------------------------


def many_tasks(folder: str) -> None:
    """Three runs in three tasks; the first has ended when SIGTERM comes."""
    agent = AsyncAgent("victim", store=store_of(folder))

    async def work(name: str, seconds: float) -> None:
        async with agent.run(name) as run:
            await run.state.set("begun", True)
            await asyncio.sleep(seconds)

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(work("quick", 0))
            group.create_task(work("slow", 600))
            group.create_task(work("slower", 600))
            await asyncio.sleep(0.3)
            os.kill(os.getpid(), signal.SIGTERM)

    asyncio.run(main())


# -- the disk is full -----------------------------------------------------------------------------------------------


def fill(folder: str, disk: str, steps: int) -> None:
    """Large steps until the disk is full; then wait for space, and make the same call again."""
    world, agent = World(folder), open_agent(disk)

    def work(number: int) -> bytes:
        return os.urandom(20_000)

    with agent.run("filling") as run:
        for number in range(steps):
            try:
                value = run.step(work, number)
            except StorageFull:
                world.note("full", str(number), str(len(agent.runs.get("filling").events)))
                (Path(folder) / "full").touch()
                wait_for((Path(folder) / "freed").exists, "space")
                value = run.step(work, number)
            world.note("ack", str(number), str(hash(value)))
        run.result = steps
    agent.close()


def ship(folder: str, disk: str, parcels: int, colour: str) -> None:
    """Steps with large results and effects, until the disk is full: then the program ends with the error."""
    palette = Palette(colour, "victim", store_of(disk))
    world = World(folder)

    async def pack(number: int) -> bytes:
        return os.urandom(6_000)

    async def send(number: int, *, key: str) -> str:
        return world.act(f"parcel-{number}", key)

    async def sent(number: int, *, key: str) -> Any:
        receipt = world.receipt(key)
        return NotDone if receipt is None else Done(receipt)

    async def work() -> None:
        step = palette.agent.step(name="pack")(palette.paint(pack))
        effect = palette.agent.effect(name="send", check=palette.paint(sent))(palette.paint(send))
        async with enter(palette.agent.run("shipping", wait=0)) as run:
            for number in range(parcels):
                await settle(step(number))
                await settle(effect(number))
                world.note("ack", str(number))
            run.result = parcels

    try:
        palette.perform(work())
    except StorageFull as error:
        world.note("full", type(error).__name__)
        sys.exit(FULL)


def verify(folder: str, disk: str, steps: int) -> None:
    """Another process replays the run: every acknowledged value is the one that was acknowledged."""
    world, agent = World(folder), open_agent(disk)
    acked = {line[1]: line[2] for line in world.lines() if line[0] == "ack"}

    def work(number: int) -> bytes:
        raise AssertionError(f"step {number} is lost")

    with agent.run("filling") as run:
        for number in range(steps):
            assert str(hash(run.step(work, number))) == acked[str(number)]
        assert run.finished
    agent.close()


def outgrow(folder: str) -> None:
    """The file may not grow any more: an I/O error that says nothing about space. Close, and open it again."""
    world = World(folder)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, limit))
    for attempt in range(2):
        agent = open_agent(folder)
        try:
            with agent.run("growing") as run:
                for number in range(40):
                    run.step(os.urandom, 20_000, id=str(number))
                    world.note("done", str(attempt), str(number))
        except (StorageFull, StoreFenced) as error:
            world.note("error", type(error).__name__)
            _note_refusal(world, agent)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        agent.close()


def _note_refusal(world: World, agent: Agent) -> None:
    try:
        with agent.run("other"):
            world.note("writes", "work")
    except PerdureError as error:
        world.note("writes", type(error).__name__)
