"""Small programs, each the body of one child process."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from perdure import Agent, Done, NotDone
from perdure.errors import Diverged, LeaseLost, PerdureError, RunBusy
from perdure.journal import leases
from perdure.platform import failpoints, process
from perdure.run import doubt
from perdure.store.postgres import pool
from perdure.values.clock import SystemClock
from tests.crash.colours import Palette, enter, settle
from tests.crash.stores import store_of
from tests.crash.waiting import WAIT_SECONDS_MAX, wait_for
from tests.crash.world import World

BUSY, LOST = 4, 7
"""Exit codes: the run was open elsewhere; it was taken over."""

DOUBT_SECONDS = 0.5
"""How long after its timeout a body counts as over."""


def open_agent(folder: str, name: str = "victim") -> Agent:
    return Agent(name, store=store_of(folder))


def statuses(folder: str, store: str = "") -> None:
    """Write down what each run is, seen from a process that has none open."""
    agent = open_agent(store or folder)
    found = {run.id: run.status for run in agent.runs.list()}
    (Path(folder) / "statuses.json").write_text(json.dumps(found))
    agent.close()


# -- many processes ---------------------------------------------------------------------------------------------


def contend(folder: str, rivals: int) -> None:
    """Open the run that all rivals open at the same moment. Who has it keeps it until all others were refused."""
    world, here = World(folder), Path(folder)
    agent = open_agent(folder)

    def book(*, key: str) -> str:
        return world.act("booked", key)

    def booked(*, key: str) -> Any:
        receipt = world.receipt(key)
        return NotDone if receipt is None else Done(receipt)

    agent.runs.list()  # the store is open: what follows is the race
    (here / f"ready-{os.getpid()}").touch()
    wait_for(lambda: len(list(here.glob("ready-*"))) >= rivals, "the rivals")
    try:
        with agent.run("shared") as run:
            world.note("opened", str(os.getpid()))
            wait_for(lambda: len(list(here.glob("busy-*"))) >= rivals - 1, "the refusal of all others")
            run.effect(book, check=booked)
            if "CRASH" in os.environ:
                os.kill(os.getpid(), signal.SIGKILL)
    except RunBusy:
        (here / f"busy-{os.getpid()}").touch()
        sys.exit(BUSY)


def chain(folder: str, name: str, steps: int) -> None:
    """A run of its own in a store that others write to as well, without a pause, until all have done their steps."""
    world, agent = World(folder), open_agent(folder)
    agent.runs.list()
    (Path(folder) / f"ready-{name}").touch()
    wait_for(lambda: len(list(Path(folder).glob("ready-*"))) >= 2, "the other")
    with agent.run(name) as run:
        number = 0
        while number < steps or len(list(Path(folder).glob("enough-*"))) < 2:
            run.step(lambda: None, id=str(number))
            number += 1
            if number == steps:
                (Path(folder) / f"enough-{name}").touch()
    world.note("done", name, str(number))


# -- zombies ----------------------------------------------------------------------------------------------------


def shorten_leases(namespace: str, seconds: float) -> None:
    """Some seconds instead of thirty; with a namespace, as if this process could not be seen from the others."""
    hasten(namespace, seconds)
    leases.LEASE_MS = int(seconds * 1000)  # type: ignore[attr-defined]


def hasten(namespace: str = "", seconds: float = DOUBT_SECONDS) -> None:
    """Quick heartbeats and short doubts. Leases last as long as always: a test ends them with `expire_leases`."""
    doubt.LEASE_MS = int(seconds * 1000)  # type: ignore[attr-defined]
    leases.HEARTBEAT_SECONDS = seconds / 4  # type: ignore[attr-defined]
    if namespace:
        process._namespace = lambda pid: namespace


def stop_here(folder: str) -> None:
    """As if the machine had been suspended for an hour: every thread stops, until somebody sends SIGCONT."""
    (Path(folder) / "stopped").touch()
    # To this thread, which stops before it returns. Sent to the process, it may meet another one first.
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
    right = SystemClock.boot_ms
    SystemClock.boot_ms = lambda clock: right(clock) + 3_600_000  # type: ignore[method-assign]


def stop_at(folder: str, place: str, pause: float) -> None:
    """Stop at the first time that a failpoint is reached; then let the heart beat before going on."""

    def hook(site: failpoints.Site, moment: failpoints.CommitMoment) -> None:
        if f"{site}:{moment}" == place and not (Path(folder) / "stopped").exists():
            stop_here(folder)
            time.sleep(pause)

    failpoints.arm(hook)


async def _haunt(palette: Palette, folder: str, place: str) -> None:
    """Steps, writes, an item and an effect; stops between two of them when `place` says so."""
    world = World(folder)

    async def look() -> str:
        world.note("body", "look")
        if place == "in step":
            stop_here(folder)
        return "seen"

    async def book(*, key: str) -> str:
        receipt = world.act("booked", key)
        if place == "in effect":
            stop_here(folder)
        return receipt

    async def booked(*, key: str) -> Any:
        receipt = world.receipt(key)
        return NotDone if receipt is None else Done(receipt)

    async with enter(palette.agent.run("shared")) as run:
        await settle(run.state.set("writer", (await settle(run.uuid())).hex))
        await settle(run.step(palette.paint(look)))
        if place == "between":
            stop_here(folder)
        await settle(run.event("WRITTEN"))
        await settle(
            run.effect(palette.paint(book), check=palette.paint(booked), timeout=0.1 if ":" in place else None)
        )
        if place == "before end":
            stop_here(folder)
        run.result = os.getpid()


def zombie(
    folder: str,
    place: str,
    colour: str = "sync",
    namespace: str = "",
    pause: float = 0.0,
    idle: float = 0.0,
) -> None:
    """Hold the run, be stopped at `place`, and wake up when another has it."""
    hasten(namespace)
    if idle:
        pool.IDLE_SECONDS_MAX = idle  # type: ignore[attr-defined]
    if ":" in place:
        stop_at(folder, place, pause)
    palette = Palette(colour, "victim", store_of(folder))
    try:
        palette.perform(_haunt(palette, folder, place))
    except Diverged:  # it replays the run that its successor has finished, with another result
        if not place.startswith("run.claim"):
            raise
    except LeaseLost:
        sys.exit(LOST)


def successor(folder: str, patient: bool) -> None:
    """Want the run: once, or until the other's lease has run out."""
    hasten()
    palette = Palette("sync", "victim", store_of(folder))
    until = time.monotonic() + WAIT_SECONDS_MAX
    while True:
        try:
            palette.perform(_haunt(palette, folder, ""))
        except RunBusy:
            if not patient or time.monotonic() > until:
                sys.exit(BUSY)
            time.sleep(0.02)
        else:
            return


def sleeper(folder: str) -> None:
    """An idle process is suspended past its deadline, is forgotten, wakes up, and opens a run."""
    hasten()
    agent = open_agent(folder)
    with agent.run("first"):
        pass
    stop_here(folder)
    with agent.run("second"):
        (Path(folder) / "second-open").touch()
        wait_for((Path(folder) / "looked").exists, "the other to look")


def newcomer(folder: str) -> None:
    """Who leaves clears away the holders whose time is over."""
    hasten()
    with open_agent(folder).run("newcomer"):
        pass


def intruder(folder: str, run_id: str) -> None:
    """Want a run that is open."""
    try:
        with open_agent(folder).run(run_id):
            pass
    except RunBusy:
        sys.exit(BUSY)


def latecomer(folder: str) -> None:
    """A body that timed out is still at work in its thread when another agent object of the process resumes the run."""
    world, free = World(folder), threading.Event()

    def book(*, key: str) -> str:
        free.wait()
        return world.act("booked", key)

    def booked(*, key: str) -> Any:
        receipt = world.receipt(key)
        return NotDone if receipt is None else Done(receipt)

    def travel(agent: Agent) -> str:
        try:
            with agent.run("shared", wait=0) as run:
                run.result = run.effect(book, check=booked, timeout=0.05)
        except PerdureError as error:
            return type(error).__name__
        return "finished"

    world.note("first", travel(open_agent(folder)))
    world.note("second", travel(open_agent(folder)))
    free.set()
    wait_for(lambda: bool(world.effects()), "the late body")
    world.note("third", travel(open_agent(folder)))


# -- answers ----------------------------------------------------------------------------------------------------


def asker(folder: str, deadly: bool = False) -> None:
    """Book, and die in the middle of it; started again, wait until somebody says how it went."""
    world, agent = World(folder), open_agent(folder)

    def book(*, key: str) -> str:
        world.act("booked", key)
        if deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        return "not heard"

    with agent.run("shared") as run:
        run.result = run.effect(book)
    agent.close()


def answerer(folder: str) -> None:
    """Somebody who looks until he is asked, and then answers."""
    agent = open_agent(folder)
    wait_for(lambda: agent.runs.get("shared").status == "waiting", "the question")
    agent.runs.answer("shared", done="a receipt", by="a person")
    agent.close()


def hold(folder: str) -> None:
    """Have the run open until killed."""
    with open_agent(folder).run("shared"):
        (Path(folder) / "stopped").touch()
        signal.pause()


if __name__ == "__main__":
    hold(*sys.argv[1:])
