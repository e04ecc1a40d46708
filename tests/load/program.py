"""The agent of the load tests, for `perdure worker tests.load.program:agent`, and the world that their effects change.

A run has ten calls; every third is an effect, a line in a file outside of every store, where nothing is deduplicated:
an effect that happens twice is two lines. Both colours do the same runs, and go on with each other's.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

from perdure import Done, NotDone
from perdure.run import doubt
from tests.crash.child_programs import shorten_leases
from tests.crash.colours import Palette, settle

NAME = "load"
CALLS, EFFECT_EVERY = 10, 3
LEASE_SECONDS = 1.0
BODY_SECONDS_MAX = 5.0
"""The timeout of an effect: so long after its lease a worker that is cut off may still act."""

PAUSE_SECONDS_MAX = 0.01
"""A body takes up to so long: somewhere in it a worker is killed."""


class Outside:
    """What the effects have done."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def act(self, run: str, number: int, key: str) -> str:
        """One line more: appending it is atomic, and a killed process does not take it back."""
        fd = os.open(self._folder / f"{run}.effects", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        os.write(fd, f"{number} {key}\n".encode())
        os.close(fd)
        return f"receipt {number}"

    def find(self, run: str, number: int, key: str) -> Any:
        """Whether it has happened, as somebody finds out who asks the other side."""
        return Done(f"receipt {number}") if [str(number), key] in self._lines(run) else NotDone

    def complaints(self, run: str) -> list[str]:
        """What did not happen once."""
        seen = Counter(number for number, _ in self._lines(run))
        wanted = {str(number) for number in effects()}
        found = [f"effect {number} of {run} happened {seen[number]} times" for number in sorted(wanted | seen.keys())]
        return [text for text in found if not text.endswith("happened 1 times")]

    def is_at_work(self, who: str) -> bool:
        """Whether that worker has begun with a run."""
        return (self._folder / f"{who}.worker").exists()

    def note(self, who: str) -> None:
        """It has."""
        (self._folder / f"{who}.worker").touch()

    def _lines(self, run: str) -> list[list[str]]:
        path = self._folder / f"{run}.effects"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def effects() -> list[int]:
    """Which of the calls are effects."""
    return [number for number in range(CALLS) if number % EFFECT_EVERY == EFFECT_EVERY - 1]


def expected_result(number: int) -> str:
    """The result of a run."""
    return " ".join(f"receipt {n}" if n in effects() else f"{number}:{n}" for n in range(CALLS))


class Work:
    """What the bodies do, in either colour."""

    def __init__(self, folder: str, who: str) -> None:
        self._outside = Outside(Path(folder))
        self._who = who

    def think(self, number: int, call: int) -> str:
        self._outside.note(self._who)
        return f"{number}:{call}"

    def act(self, number: int, call: int, key: str) -> str:
        return self._outside.act(f"r{number}", call, key)

    def has_acted(self, number: int, call: int, key: str) -> Any:
        return self._outside.find(f"r{number}", call, key)


class Fleet(Palette):
    """The task in one colour."""

    def __init__(self, colour: str, url: str, work: Work) -> None:
        super().__init__(colour, NAME, url)
        self._work = work
        self._think = self.agent.step(self.paint(self.think))
        certain = self.agent.effect(check=self.paint(self.has_acted), timeout=BODY_SECONDS_MAX)
        self._act = certain(self.paint(self.act))
        self.task = self.agent.task(self.paint(self.job))

    async def job(self, number: int) -> str:
        """A run."""
        said = [await settle((self._act if n in effects() else self._think)(number, n)) for n in range(CALLS)]
        return " ".join(said)

    async def think(self, number: int, call: int) -> str:
        await self._pause()
        return self._work.think(number, call)

    async def act(self, number: int, call: int, *, key: str) -> str:
        await self._pause()
        said = self._work.act(number, call, key)
        await self._pause()
        return said

    async def has_acted(self, number: int, call: int, *, key: str) -> Any:
        return self._work.has_acted(number, call, key)

    async def _pause(self) -> None:
        seconds = random.uniform(0, PAUSE_SECONDS_MAX)
        await settle(asyncio.sleep(seconds) if self.is_async else time.sleep(seconds))


if "LOAD_STORE" in os.environ:  # in a worker
    shorten_leases("", LEASE_SECONDS)
    doubt.CHECK_AGAIN_SECONDS = 0.05
    fleet = Fleet(
        os.environ["LOAD_COLOUR"], os.environ["LOAD_STORE"], Work(os.environ["LOAD_FOLDER"], os.environ["LOAD_WHO"])
    )
    agent = fleet.agent
