"""Savers meet: each has a process and a store of its own, and they take turns in blocks of steps."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import apsw
import msgspec

from ..comparison.companion import Companion
from ..comparison.standings import POSTGRES
from ..lab import Lab
from .standings import KINDS, MEMORY, Entry, Looped, Talked, Times

BLOCK = 50
MARKS = (100, 300, 1000)
EDGE = 100
CROWD = 8


class Sizes(msgspec.Struct, frozen=True):
    """How much is done."""

    steps: int
    reads: int
    fresh: int
    loop: int
    loops: int
    crowd: int
    rounds: int
    long: int


WHOLE = Sizes(steps=1000, reads=25, fresh=3, loop=200, loops=2, crowd=12, rounds=3, long=1000)
QUICK = Sizes(steps=100, reads=5, fresh=1, loop=20, loops=1, crowd=5, rounds=2, long=50)


class Player:
    """One saver in its process, and the store that it writes."""

    def __init__(self, lab: Lab, entry: Entry, python: str, *, pooled: bool = False) -> None:
        self.entry, self._lab, self._python, self._pooled = entry, lab, python, pooled
        self.folder: Path | None = None
        self.database, self.url = "", ""
        if entry.store == POSTGRES:
            self.database = lab.server.new_database()
            self.url = lab.server.url(self.database)
        elif entry.store != MEMORY:
            self.folder = lab.new_folder("saver")
            self.url = f"sqlite:///{self.folder / 'saver.db'}"
        self._child = self._start()

    def _start(self) -> Companion:
        spec = {"system": self.entry.saver, "url": self.url, "pooled": self._pooled}
        return Companion(self._python, spec, module="bench.savers.child")

    def wait_opened(self) -> None:
        """Wait until its saver is open."""
        self._child.hear()

    def do(self, what: str, **arguments: Any) -> dict[str, Any]:
        """An order and its answer."""
        self._child.order(do=what, **arguments)
        return self._child.hear()

    def restart(self) -> None:
        """A new process on the same store."""
        self._child.end()
        self._child.kill()
        self._child = self._start()
        self.wait_opened()

    def bytes(self) -> int:
        """On disk, with nothing left in the log of a file; in memory nothing is."""
        if self.entry.store == POSTGRES:
            return self._lab.server.table_bytes(self.database)
        if self.folder is None:
            return 0
        connection = apsw.Connection(str(self.folder / "saver.db"))
        connection.set_busy_timeout(5000)
        # As a statement: one that has not opened the file yet knows of no log.
        assert connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() == (0, 0, 0), "the log is in use"
        connection.close()
        return sum(file.stat().st_size for file in self.folder.rglob("*") if file.is_file())

    def close(self) -> None:
        """The process ends, and its store is gone: half a gigabyte of some."""
        self._child.kill()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
        if self.database:
            self._lab.server.drop(self.database)


class Race:
    """All comparisons of some savers."""

    def __init__(self, lab: Lab, entries: Sequence[Entry], pythons: dict[bool, str]) -> None:
        self._lab, self._entries, self._pythons = lab, entries, pythons
        self.sizes = QUICK if lab.quick else WHOLE

    @contextmanager
    def _players(self, entries: Sequence[Entry], *, pooled: bool = False) -> Iterator[list[Player]]:
        with ExitStack() as stack:
            players = []
            for entry in entries:
                player = Player(self._lab, entry, self._pythons[entry.ours], pooled=pooled)
                stack.callback(player.close)
                players.append(player)
            for player in players:
                player.wait_opened()
            yield players

    def facts(self) -> dict[Entry, dict[str, Any]]:
        """Versions and settings."""
        with self._players(self._entries) as players:
            return {player.entry: player.do("facts") for player in players}

    def talks(self, kind: str) -> dict[Entry, Talked]:
        """A conversation of each; in LangChain's messages of the blocking ones, to whom the others come close."""
        entries = [entry for entry in self._entries if entry.blocking or kind == "dicts"]
        with self._players(entries) as players:
            tallies = {player.entry: _Tally() for player in players}
            for number, first in enumerate(range(0, self.sizes.steps, BLOCK)):
                self._lab.say(f"{KINDS[kind]}: step {first} of {self.sizes.steps}")
                for player in _turn(players, number):
                    tallies[player.entry].block(player, kind, first)
            for number in range(4):
                for player in _turn(players, number):
                    tallies[player.entry].reads(player, self.sizes)
            for player in players:
                tallies[player.entry].fresh_reads(player, self.sizes)
            return {entry: tally.figures() for entry, tally in tallies.items()}

    def loops(self) -> tuple[dict[Entry, Looped], float]:
        """A graph of each, and what the graph takes by itself."""
        found: dict[Entry, list[dict[str, float]]] = {entry: [] for entry in self._entries}
        bare = []
        with self._players(self._entries) as players:
            for number in range(self.sizes.loops + 1):
                self._lab.say(f"graphs: round {number + 1} of {self.sizes.loops + 1}")
                for player in _turn(players, number):
                    # The first one is short: it warms up.
                    steps = self.sizes.loop if number else 20
                    found[player.entry].append(player.do("loop", thread=f"loop-{number}", steps=steps))
                bare.append(players[0].do("bare", steps=self.sizes.loop)["ms"])
        ends = {
            entry: Looped(median(one["ms"] for one in all_[1:]), median(one["get_ms"] for one in all_[1:]))
            for entry, all_ in found.items()
        }
        return ends, median(bare[1:])

    def run_long(self, entry: Entry, *, delta: bool) -> Looped:
        """One graph of 1,000 steps."""
        self._lab.say(f"{entry.saver} on {entry.store}: {self.sizes.long} steps{' with a DeltaChannel' * delta}")
        with self._players([entry]) as [player]:
            found = player.do("loop", thread="long", steps=self.sizes.long, delta=delta)
            return Looped(found["ms"], found["get_ms"], player.bytes())

    def crowds(self) -> dict[Entry, tuple[float, float]]:
        """Steps per second of one conversation, and of eight at once."""
        found: dict[Entry, list[dict[str, float]]] = {entry: [] for entry in self._entries}
        with self._players(self._entries, pooled=True) as players:
            for number in range(self.sizes.rounds + 1):
                self._lab.say(f"eight at once: round {number + 1} of {self.sizes.rounds + 1}")
                for player in _turn(players, number):
                    found[player.entry].append(player.do("crowd", count=CROWD, steps=self.sizes.crowd))
        # The first round warms up. The best alone and the median of ratios would flatter: medians of both.
        return {
            entry: (median(one["alone"] for one in all_[1:]), median(one["together"] for one in all_[1:]))
            for entry, all_ in found.items()
        }


class _Tally:
    """What one player has told of its conversation."""

    def __init__(self) -> None:
        self._puts: list[int] = []
        self._writes: list[int] = []
        self._gets: list[int] = []
        self._fresh: list[int] = []
        self._bytes: dict[int, int] = {}

    def block(self, player: Player, kind: str, first: int) -> None:
        told = player.do("steps", thread="talk", kind=kind, first=first, size=BLOCK)
        self._puts += told["puts"]
        self._writes += told["writes"]
        if first + BLOCK in MARKS:
            self._bytes[first + BLOCK] = player.bytes()

    def reads(self, player: Player, sizes: Sizes) -> None:
        self._gets += player.do("gets", thread="talk", times=sizes.reads, messages=sizes.steps)["gets"]

    def fresh_reads(self, player: Player, sizes: Sizes) -> None:
        if player.entry.store == MEMORY or not player.entry.blocking:
            return
        for _ in range(sizes.fresh):
            player.restart()
            self._fresh += player.do("gets", thread="talk", times=1, messages=sizes.steps)["gets"]

    def figures(self) -> Talked:
        both = [put + write for put, write in zip(self._puts, self._writes, strict=True)]
        return Talked(
            put=_times(self._puts),
            writes=_times(self._writes),
            first=_times(both[:EDGE]),
            last=_times(both[-EDGE:]),
            last_put=_times(self._puts[-EDGE:]),
            get=_times(self._gets),
            fresh_get_ms=median(self._fresh) / 1e6 if self._fresh else None,
            bytes=self._bytes,
        )


def _turn(players: Sequence[Player], number: int) -> Sequence[Player]:
    """In another order each time, so that what disturbs one disturbs all."""
    start = number % len(players)
    return [*players[start:], *players[:start]]


def _times(nanoseconds: Sequence[int]) -> Times:
    ranked = sorted(nanoseconds)
    return Times(median(ranked) / 1e6, ranked[min(len(ranked) - 1, int(len(ranked) * 0.99))] / 1e6)
