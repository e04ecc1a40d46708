"""One of several programs, on several hosts, that all want to do the same run: whoever has it does what is left.

It never gives up: refused, fenced off or cut off, it tries again until the run is finished. What it did while it
thought that the run was its own is in the outside log and in the journal, where the test compares the two.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from perdure import Agent, Done, InDoubt, NotDone, RunBusy, RunWaiting
from perdure import records as r
from perdure.errors import LeaseLost, StoreBusy, StoreUnavailable
from perdure.run import doubt
from tests.crash.child_programs import shorten_leases
from tests.crash.outcome import find_damage
from tests.crash.waiting import wait_for
from tests.crash.world import World

AGENT, RUN = "worker", "shared"
LEASE_SECONDS = 1.0
TRY_SECONDS_MAX = 60.0
BUSY = 4
GO = "go"
"""A file in the folder."""


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """What one of them does, besides the work."""

    folder: str
    url: str
    who: str
    items: int
    namespace: str = ""
    """Of process ids: as if nobody could look at it."""
    hold_at: int = -1
    """The item at which it waits, without a word to the store, until the test says GO."""
    slow_at: int = -1
    """The item whose effect is slow: its body has begun, and acts when the test says GO."""
    body_seconds_max: float = 0.5
    """The timeout of each effect."""
    pause_seconds: float = 0.02
    """Between two items, and between two tries."""
    once: bool = False
    """A single try, whose exit code says whether somebody else has the run."""


class Contender:
    """The program of one host."""

    def __init__(self, orders: Orders) -> None:
        self.world = World(orders.folder)
        self.orders = orders
        self.who = orders.who
        self._agent = Agent(AGENT, store=orders.url)

    def work_until_done(self) -> None:
        """Again and again, until somebody has finished it."""
        until = time.monotonic() + TRY_SECONDS_MAX
        while time.monotonic() < until:
            try:
                self.work()
            # Busy too: with a second for a statement, whoever waits for the lock of one that is cut off gives up.
            except (RunBusy, LeaseLost, StoreUnavailable, StoreBusy, RunWaiting, InDoubt) as error:
                self.world.note(type(error).__name__, self.who)
                time.sleep(self.orders.pause_seconds)
            else:
                self._agent.close()
                return
        raise AssertionError(f"{self.who} has tried for {TRY_SECONDS_MAX:g} s")

    def work(self) -> None:
        orders = self.orders
        with self._agent.run(RUN, wait=0) as run:
            if run.finished:
                return
            self.world.note("opened", self.who)
            for item in run.each([str(number) for number in range(orders.items)]):
                run.state["by"] = self.who
                if int(item) == orders.hold_at:
                    run.step(self.hold)  # the next thing that it commits is what the step came to
                run.effect(self.act, item, check=self.has_acted, timeout=orders.body_seconds_max)
                time.sleep(self.orders.pause_seconds)
            run.result = self.who

    def hold(self) -> None:
        self.world.note("holds", self.who)
        wait_for((Path(self.orders.folder) / GO).exists, "the word to go on")

    def act(self, item: str, *, key: str) -> str:
        if int(item) == self.orders.slow_at:
            self.hold()
        return self.world.act(f"item-{item}", key)

    def has_acted(self, item: str, *, key: str) -> Any:
        self.world.note("asked", self.who)
        receipt = self.world.receipt(key)
        return NotDone if receipt is None else Done(receipt)


def main(**orders: Any) -> None:
    """Carry out orders."""
    item = Orders(**orders)
    shorten_leases(item.namespace, LEASE_SECONDS)
    doubt.CHECK_AGAIN_SECONDS = 0.05
    contender = Contender(item)
    if not item.once:
        contender.work_until_done()
        return
    try:
        contender.work()
    except RunBusy:
        sys.exit(BUSY)


def judge(url: str, world: World, items: int) -> list[str]:
    """All that is wrong: effects not once, entries of somebody who was not the writer, damage."""
    effects = world.effects()
    found = [f"item {n} was done {effects[f'item-{n}']} times" for n in range(items) if effects[f"item-{n}"] != 1]
    agent = Agent(AGENT, store=url)
    try:
        info = agent.runs.get(RUN)
        if info.status != "finished":
            found.append(f"the run is {info.status}")
        found += _strangers(info)
        found += find_damage(agent._engine.store)
    finally:
        agent.close()
    return found


def writers(url: str) -> list[tuple[str, int]]:
    """Who had the run, in order: host and pid."""
    agent = Agent(AGENT, store=url)
    try:
        events = agent.runs.get(RUN).events
    finally:
        agent.close()
    openings = [event.record for event in events if isinstance(event.record, r.RunStarted | r.RunResumed)]
    return [(opening.holder.host, opening.holder.pid) for opening in openings]


def _strangers(info: Any) -> list[str]:
    """Items of one fence that two have written."""
    found: list[str] = []
    names: dict[int, bytes] = {}
    fence = 0
    for event in info.events:
        if isinstance(event.record, r.RunStarted | r.RunResumed):
            fence += 1
        elif isinstance(event.record, r.ItemDone):
            for write in event.record.writes:
                if names.setdefault(fence, write.value) != write.value:
                    found.append(f"with fence {fence} both {names[fence]!r} and {write.value!r} have written")
    return found


if __name__ == "__main__":
    main(**msgspec.json.decode(sys.argv[1]))
