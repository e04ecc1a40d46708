"""The crash test as a whole: learn the program, choose places, kill it there, judge."""

from __future__ import annotations

import difflib
import os
import re
import shlex
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

import msgspec

from ...store import is_postgres, without_password
from .findings import judge, learn
from .outside import Outside
from .places import AGAIN, RANDOM, Place, chosen, instants, places_of
from .report import ONLY_HERE, Report, Trial, Verdict
from .stage import CrashtestProblem, Patience, Round, Stage, is_raise

LIMIT = 60
"""Kills, unless somebody wants more."""

INSTANT = re.compile(r"after:\d+(\.\d+)?s")

JOBS_MAX = 4
FIRST_SECONDS_MAX = 120.0
"""The program in peace must end in that time, unless --timeout says otherwise."""

SEED = 20
"""Of the random instants: the same ones every time."""


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody wants to have tested, and how."""

    program: str
    arguments: tuple[str, ...] = ()
    folder: str = ""
    store: str = ""
    depth: int = 1
    jobs: int = 0
    count_effects: str = ""
    limit: int = LIMIT
    only: tuple[str, ...] = ()
    timeout: float = 0
    keep: bool = False

    def said(self) -> str:
        """The command that asks for the same, without a password, and with a mark where --only belongs."""
        words = ["perdure", "crashtest", self.program]
        store = without_password(self.store) if is_postgres(self.store) else self.store
        for option, value in (("--folder", self.folder), ("--store", store), ("--count-effects", self.count_effects)):
            words += [option, value] if value else []
        words += ["--timeout", f"{self.timeout:g}s"] if self.timeout else []
        rest = shlex.join(["--", *self.arguments]) if self.arguments else ""
        return f"{shlex.join(words)} {ONLY_HERE} {rest}".rstrip()


def crashtest(
    program: str | os.PathLike[str],
    *arguments: str,
    folder: str | os.PathLike[str] = "",
    store: str = "",
    depth: int = 1,
    jobs: int = 0,
    count_effects: str = "",
    limit: int = LIMIT,
    only: Sequence[str] = (),
    timeout: float = 0,
    keep: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Report:
    """Kill a program everywhere, start it again, and compare.

    >>> crashtest("agent.py", count_effects="outside.txt", limit=20).assert_survives()
    """
    wish = Wish(
        program=os.fspath(program), arguments=arguments, folder=os.fspath(folder), store=store, depth=depth, jobs=jobs,
        count_effects=count_effects, limit=limit, only=tuple(only), timeout=timeout, keep=keep,
    )  # fmt: skip
    return perform(wish, progress)


def perform(wish: Wish, progress: Callable[[int, int], None]) -> Report:
    """The same, of a wish."""
    folder, program = _located(wish)
    stage = Stage(program, wish.arguments, folder, Outside(wish.count_effects or None), wish.store)
    try:
        return _Test(wish, stage, progress).perform()
    finally:
        stage.close()


def _located(wish: Wish) -> tuple[Path, str]:
    """The folder to copy, and the program in it."""
    program = Path(wish.program).resolve()
    if not program.is_file():
        raise CrashtestProblem(
            f"there is no program {wish.program}", hint="give the path of a Python file, without `python` before it"
        )
    here = Path(wish.folder).resolve() if wish.folder else Path.cwd()
    if not program.is_relative_to(here):
        if wish.folder:
            raise CrashtestProblem(f"{wish.program} is not in {wish.folder}", hint="--folder must hold the program")
        here = program.parent
    return here, program.relative_to(here).as_posix()


class _Test:
    """One crash test."""

    def __init__(self, wish: Wish, stage: Stage, progress: Callable[[int, int], None]) -> None:
        self._wish = wish
        self._stage = stage
        self._progress = progress
        self._trials: list[Trial] = []
        self._recoveries: dict[str, list[Place]] = {}
        self._lock = threading.Lock()
        self._notes: list[str] = []
        self._began = time.monotonic()

    def perform(self) -> Report:
        interrupted = False
        undisturbed, places = 0.0, []
        try:
            one, other = self._in_peace(thorough=False), self._in_peace(thorough=True)
            undisturbed = sum(start.seconds for start in one.starts)
            self._learned = learn(one, other, self._stage.source, self._stage.source_line)
            self._patience = _patience(self._wish, one, other)
            places = places_of(other.trail)
            self._note_outside(other)
            for done in (one, other):
                self._stage.clear(done)
            self._kill_everywhere(places, undisturbed)
            if missed := sum(not trial.reached for trial in self._trials):
                self._notes.append(f"{missed} of these kills came too late: the program went another way, or had ended")
        except KeyboardInterrupt:
            interrupted = True
        return Report(
            self._stage.program, self._wish.said(), time.monotonic() - self._began, undisturbed, len(places),
            tuple(self._trials), tuple(self._notes), interrupted,
        )  # fmt: skip

    def _in_peace(self, thorough: bool) -> Round:
        done = self._stage.undisturbed(self._wish.timeout or FIRST_SECONDS_MAX, thorough)
        printed = "\n".join(done.last.output.splitlines()[-5:])
        if done.last.hung:
            waits = f"; it waits: {done.snapshot.waits[0]}" if done.snapshot.waits else ""
            raise CrashtestProblem(
                f"undisturbed, {self._stage.program} does not end in {done.last.seconds:.0f} s{waits}\n{printed}",
                hint="a crash test needs a program that ends by itself; allow more with --timeout",
            )
        if not done.snapshot.leaves:
            raise CrashtestProblem(
                f"{self._stage.program} ended with {done.last.code}, and has left nothing in a store\n{printed}",
                hint='let it use the store of PERDURE_URL, as Agent("name") does, or a file in its working folder',
            )
        return done

    def _note_outside(self, other: Round) -> None:
        if not self._wish.count_effects:
            self._notes.append("the world outside was not counted: say where effects show with --count-effects")
        elif not self._learned.outside:
            self._notes.append(f"--count-effects {self._wish.count_effects}: undisturbed, nothing was counted there")

    def _kill_everywhere(self, places: list[Place], undisturbed: float) -> None:
        if self._wish.only:
            self._all([_named(one, places) for one in self._wish.only])
            return
        limit = self._wish.limit
        pairs = limit // 4 if self._wish.depth > 1 else 0
        randoms = instants(min(4, max(1, limit // 10)) if limit else 10, undisturbed, SEED)
        singles = chosen(places, max(1, limit - pairs - len(randoms)) if limit else 0)
        if len(singles) < len(places):
            self._notes.append(f"{len(singles)} of {len(places)} places, spread evenly; --limit 0 tries them all")
        expected = len(singles) + len(randoms) + pairs
        self._all([(place,) for place in (*singles, *randoms)], expected)
        if self._wish.depth > 1:
            self._all(self._pairs(pairs), expected)

    def _pairs(self, count: int) -> list[tuple[Place, ...]]:
        """First kills with a second one in the start that follows: where that has been, is known by now."""
        options = []
        for name, recovery in self._recoveries.items():
            step = max(1, len(recovery) // 4)
            options += [(Place(name, AGAIN, second.at), second) for second in recovery[::step]]
        if not count or len(options) <= count:
            return list(options)
        return [options[number * len(options) // count] for number in range(count)]

    def _all(self, rounds: list[tuple[Place, ...]], expected: int = 0) -> None:
        jobs = self._wish.jobs or (1 if self._stage.outside.is_shared else min(JOBS_MAX, os.cpu_count() or 1))
        total = expected or len(rounds)
        waiting: set[Future[None]] = set()
        with ThreadPoolExecutor(jobs) as pool:
            try:
                waiting = {pool.submit(self._one, places) for places in rounds}
                while waiting:
                    done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                    for future in done:
                        future.result()
                    self._progress(len(self._trials), total)
            except BaseException:
                self._stage.stop()
                for future in waiting:
                    future.cancel()
                raise
        order = {places: number for number, places in enumerate(rounds)}
        self._trials.sort(key=lambda trial: (len(trial.places), order.get(trial.places, -1)))

    def _one(self, places: tuple[Place, ...]) -> None:
        began = time.monotonic()
        done = self._stage.round(tuple(place.name for place in places), self._patience)
        if self._stage.stopped:
            return
        findings = tuple(judge(self._learned, done))
        verdict = Verdict.FAILED if findings else Verdict.ASKED if done.snapshot.asked else Verdict.SURVIVED
        kept = bool(findings) and self._wish.keep
        if kept:
            self._stage.keep(done)
        else:
            self._stage.clear(done)
        seconds = time.monotonic() - began
        trial = Trial(places, verdict, done.reached, len(done.starts), seconds, findings, done.folder if kept else "")
        with self._lock:
            self._trials.append(trial)
            if done.reached and len(places) == 1 and not is_raise(places[0].name):
                self._recoveries[places[0].name] = places_of(done.trail)


def _named(only: str, places: list[Place]) -> tuple[Place, ...]:
    """What `--only` names: a place of the undisturbed run or an instant, and perhaps one of the start that follows."""
    known = {place.name: place for place in places}
    first, *more = only.split(",")
    if first not in known and not INSTANT.fullmatch(first):
        close = difflib.get_close_matches(first, known, 1)
        meant = f"did you mean {close[0]}?" if close else "take a place from a report"
        raise CrashtestProblem(f"--only {only}: the undisturbed run does not pass there", hint=meant)
    begins = known.get(first, Place(first, RANDOM))
    return (begins, *(Place(name, AGAIN) for name in more))


def _patience(wish: Wish, one: Round, other: Round) -> Patience:
    """A start takes what it takes in peace, and much more if the machine is busy."""
    longest = max(start.seconds for done in (one, other) for start in done.starts)
    return Patience(other.last.code, wish.timeout or max(20.0, 10 * longest), 0.5 + 1.5 * longest)
