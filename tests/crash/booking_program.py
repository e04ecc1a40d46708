"""The program of the kill matrix: one run with one effect, killed in a cell of it, then started again.

    before      the intent is durable, the request has not been sent
    after       the service has booked, the outcome is not recorded
    recorded    the outcome is recorded, the run has not ended
    raises      the service has booked, then the body raises

The kill comes from the kernel after a random delay: SIGALRM, whose default action ends a process as abruptly as
SIGKILL, between any two instructions, and needs no second process to be scheduled in time.
"""

from __future__ import annotations

import random
import signal
import time
from typing import Any

from perdure import Agent, Done, InDoubt, NotDone, RunWaiting, Unknown
from perdure.run import doubt
from tests.crash import service
from tests.crash.stores import store_of
from tests.crash.world import World

CELLS = ("before", "after", "recorded", "raises")
KILL_SECONDS_MAX = 0.006
LINGER_SECONDS = 0.02
TRIES_MAX = 200


class Booking:
    """One round of a cell."""

    def __init__(self, folder: str, cell: str, policy: str, number: int, deadly: bool) -> None:
        self.folder = folder
        self.cell = cell
        self.name = f"{cell}-{policy}-{number}"
        self.world = World(folder)
        self.agent = Agent("traveller", store=store_of(folder))
        self._number = number
        self._deadly = deadly
        self._chance = random.Random(f"{self.name} {deadly}")
        check = self.is_booked if policy == "check" else None
        self.effect = self.agent.effect(name="book", check=check)(self.book)

    def window(self, cell: str) -> None:
        """If this is the cell of this round, die soon: in every other round surely inside the window."""
        if not self._deadly or cell != self.cell:
            return
        if self._number % 2 == 0 and cell == "raises":
            return  # nobody is killed: the check is asked at once
        signal.setitimer(signal.ITIMER_REAL, self._chance.uniform(1e-5, KILL_SECONDS_MAX))
        if self._number % 2 == 0:
            time.sleep(LINGER_SECONDS)

    def book(self, name: str, *, key: str) -> str:
        self.window("before")
        receipt: str = service.ask(self.folder, "book", name=name, key=key)["receipt"]
        self.window("after")
        self.window("raises")
        if self.cell == "raises":
            raise ConnectionError("the line broke after the booking")
        return receipt

    def is_booked(self, name: str, *, key: str) -> Any:
        found = service.ask(self.folder, "find", key=key)
        if "unknown" in found:
            return Unknown
        return NotDone if found["receipt"] is None else Done(found["receipt"])

    def travel(self, wait: float | None) -> None:
        with self.agent.run(self.name, wait=wait) as run:
            run.result = self.effect(self.name)
            self.window("recorded")

    def answer(self) -> None:
        """A person looks into the books of the service, which a person can."""
        [effect] = self.agent.runs.get(self.name).in_doubt
        receipt = service.ask(self.folder, "look", key=effect.key)["receipt"]
        self.world.note("waited", self.name)
        if receipt is None:
            self.agent.runs.answer(self.name, retry=True, by="a person")
        else:
            self.agent.runs.answer(self.name, done=receipt, by="a person")


def with_check(folder: str, cell: str, number: int, deadly: bool) -> None:
    """Go on until the check has settled it: in every third round by waiting, else by opening the run again."""
    doubt.CHECK_AGAIN_SECONDS = 0.005
    booking = Booking(folder, cell, "check", number, deadly)
    for _ in range(TRIES_MAX):
        try:
            booking.travel(wait=None if number % 3 == 0 else 0)
        except (InDoubt, RunWaiting):
            continue
        return
    raise AssertionError("the check never settles it")


def with_a_person(folder: str, cell: str, number: int, deadly: bool) -> None:
    """No check: the run waits until somebody says what happened."""
    booking = Booking(folder, cell, "ask", number, deadly)
    for _ in range(TRIES_MAX):
        try:
            booking.travel(wait=0)
        except InDoubt:
            continue
        except RunWaiting:
            booking.answer()
            continue
        return
    raise AssertionError("the person is asked for ever")
