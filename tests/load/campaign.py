"""Workers under load that are killed and cut off, again and again; and what is left in the end."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from tests.crash.outcome import find_damage
from tests.load.program import Fleet, Outside, Work, expected_result
from tests.postgres.hosts import Host

CONCURRENCY = 8
"""Runs at a time in one worker."""

SECONDS_MAX = float(os.environ.get("LOAD_SECONDS", "inf"))
"""Of a long one: nobody is killed after that."""

BACKLOG = 24
"""As long as somebody is to be killed, at least so many runs are there to be done."""

CALM_SECONDS_MAX = 60.0
"""Left alone, the workers are done with all of them within this."""

PAUSE_SECONDS_MAX = 0.4
"""Between two kills."""

TURNED_AWAY = "error[PD201]"
"""What a worker says that does not reach its store."""

COMMAND = ("worker", "tests.load.program:agent", "--concurrency", str(CONCURRENCY))


class Process(Protocol):
    """A worker, here or on a host."""

    @property
    def ended(self) -> bool: ...

    def send(self, number: int) -> None: ...

    def wait(self, seconds: float) -> int: ...

    def output(self) -> str: ...


Launch = Callable[[str], Process]
"""Start the worker of this name."""


class Place:
    """Where a worker is always at work: when one has died, there is another."""

    def __init__(self, name: str, launch: Launch, host: Host | None = None) -> None:
        self.host = host
        self._name = name
        self._launch = launch
        self._lives = 0
        self.start()

    @property
    def who(self) -> str:
        """The worker that is here now."""
        return f"{self._name}-{self._lives}"

    def start(self) -> None:
        self._lives += 1
        self.process = self._launch(self.who)

    def kill(self) -> None:
        """No word to anybody; the next one starts at once."""
        self.process.send(signal.SIGKILL)
        self.process.wait(20)
        self.start()


class Tally(msgspec.Struct):
    """What was done to them."""

    seed: int
    kills: int = 0
    at_work: int = 0
    """Of the kills, those of workers that had begun with a run."""
    cuts: int = 0
    turned_away: int = 0
    """Workers that could not reach the server when they were started."""
    gone: int = 0
    """Workers that have ended by themselves, and should not."""
    runs: int = 0
    seconds: float = 0.0


class Campaign:
    """One store, some workers, and runs for them."""

    def __init__(self, url: str, folder: Path, places: Sequence[Place], seed: int) -> None:
        self.tally = Tally(seed)
        self._chance = random.Random(seed)
        self._places = places
        self._outside = Outside(folder)
        self._fleet = Fleet("sync", url, Work(str(folder), "nobody"))
        self._complaints: list[str] = []

    def feed(self, count: int) -> None:
        """So many runs more."""
        for number in range(self.tally.runs, self.tally.runs + count):
            self._fleet.task.start(f"r{number}", number)
        self.tally.runs += count

    def strike(self, kills: int, cuts: int) -> None:
        """Kill and cut, at random moments, while there is work for all."""
        began = time.monotonic()
        blows = ["kill"] * kills + ["cut"] * cuts
        self._chance.shuffle(blows)
        for blow in blows:
            if time.monotonic() - began > SECONDS_MAX:
                break  # the tally says how far it came
            if self._count_unfinished() < BACKLOG:
                self.feed(BACKLOG)
            self._revive()
            self._kill() if blow == "kill" else self._cut()
        self.tally.seconds += time.monotonic() - began

    def _kill(self) -> None:
        """One that is at work, if there is one soon; whoever has just started, else. Not at once: a run that kills
        whoever begins with it is taken for the cause.
        """
        for _ in range(300):
            busy = [place for place in self._places if self._outside.is_at_work(place.who)]
            if busy:
                break
            time.sleep(0.01)
        unlucky = self._chance.choice(busy or self._places)
        time.sleep(self._chance.uniform(0.0, PAUSE_SECONDS_MAX))
        unlucky.kill()
        self.tally.kills += 1
        self.tally.at_work += bool(busy)

    def _cut(self) -> None:
        """Past its lease, or not: then it finds its runs as it has left them."""
        host = self._chance.choice([place.host for place in self._places if place.host is not None])
        host.unplug()
        time.sleep(self._chance.uniform(0.2, 2.5))
        host.plug()
        self.tally.cuts += 1

    def _revive(self) -> None:
        for place in self._places:
            if place.process.ended:
                self._take_note(place)
                place.start()

    def _take_note(self, place: Place) -> None:
        """Of one that has ended by itself. It may if it was started while its host was cut off: that is an error to
        tell, and whoever has started it tries again.
        """
        said = place.process.output()
        if self.tally.cuts and TURNED_AWAY in said and not self._outside.is_at_work(place.who):
            self.tally.turned_away += 1
        else:
            self.tally.gone += 1
            self._complaints.append(f"{place.who} has ended by itself:\n{said[-3000:]}")

    def _count_unfinished(self) -> int:
        """Runs that have not finished."""
        return sum(run.queued + run.running + run.parked + run.dead for run in self._fleet.agent.queues.list())

    def end(self) -> list[str]:
        """Leave them alone until they have done everything; what is wrong."""
        until = time.monotonic() + CALM_SECONDS_MAX
        while (left := self._count_unfinished()) and time.monotonic() < until:
            self._revive()
            time.sleep(0.05)
        found = [text for place in self._places for text in self._stop(place)]
        if left:
            found.append(f"{left} runs have not ended: {self._fleet.agent.queues.list()}")
        return self._complaints + found + self._judge()

    def _stop(self, place: Place) -> list[str]:
        """In order; one that has only just started may not have got so far as to know what that is."""
        if not self._outside.is_at_work(place.who):
            place.process.send(signal.SIGKILL)
            place.process.wait(20)
            return []
        place.process.send(signal.SIGTERM)
        code = place.process.wait(30)
        return [f"{place.who} was told to stop, and ended with {code}"] if code else []

    def _judge(self) -> list[str]:
        agent, found = self._fleet.agent, []
        ended = {summary.id: summary for summary in agent.runs.list()}
        for number in range(self.tally.runs):
            run = f"r{number}"
            status = ended[run].status if run in ended else "lost"
            if status != "finished":
                why = f": {agent.runs.get(run).error}" if status == "failed" else ""
                found.append(f"{run} is {status}{why}")
            elif (result := agent.runs.result(run)) != expected_result(number):
                found.append(f"{run} has the result {result!r}")
            found += self._outside.complaints(run)
        found += find_damage(agent._engine.store)
        agent.close()
        return found
