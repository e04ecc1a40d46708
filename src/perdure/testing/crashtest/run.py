"""The crash test as a whole: observe the program, choose places, disturb it there, judge."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from perdure.testing.crashtest.baseline import ExpectedOutcome, learn
from perdure.testing.crashtest.findings import CrashFinding, judge, take_last_lines
from perdure.testing.crashtest.messages import CrashtestProblem, Disturbance
from perdure.testing.crashtest.options import BUDGET_SECONDS, LIMIT, CrashtestOptions
from perdure.testing.crashtest.outside import OutsideWorld
from perdure.testing.crashtest.people import ScriptedAnswers
from perdure.testing.crashtest.places import CrashPoint, places_of
from perdure.testing.crashtest.plan import PlannedRounds, plan_rounds, resolve_only, shares_of, twice
from perdure.testing.crashtest.questions import note_questions
from perdure.testing.crashtest.report import CrashtestReport, RepeatedRound, RoundResult, RoundVerdict
from perdure.testing.crashtest.rounds import CrashRound, CrashStage, RoundTimeouts
from perdure.testing.crashtest.snapshot import JournaledEffect
from perdure.values.hints import did_you_mean

JOBS_MAX = 4
FIRST_SECONDS_MAX = 120.0
"""The time limit of an undisturbed run, unless --timeout sets another."""

CONFIRMED_MAX = 12
"""How many findings are repeated, to see whether their command shows them again."""

PRINTED_MAX = 8
"""How many lines of a program's output are shown."""

TRIES = 3
"""How many rounds of one finding are repeated until one shows it again."""


def crashtest(
    program: str | os.PathLike[str],
    *arguments: str,
    folder: str | os.PathLike[str] = "",
    store: str = "",
    depth: int = 1,
    jobs: int = 0,
    count_effects: str = "",
    answers: Sequence[str] = (),
    events: Sequence[str] = (),
    limit: int = LIMIT,
    budget: float = BUDGET_SECONDS,
    only: Sequence[str] = (),
    timeout: float = 0,
    keep: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> CrashtestReport:
    """Kill a program everywhere, restart it, and compare the outcome with undisturbed runs.

    >>> crashtest("agent.py", count_effects="outside.txt", limit=20).assert_survives()
    """
    wish = CrashtestOptions(
        program=os.fspath(program), arguments=arguments, folder=os.fspath(folder), store=store, depth=depth, jobs=jobs,
        count_effects=count_effects, answers=tuple(answers), events=tuple(events), limit=limit, budget=budget,
        only=tuple(only), timeout=timeout, keep=keep,
    )  # fmt: skip
    return perform(wish, progress)


def perform(wish: CrashtestOptions, progress: Callable[[int, int], None]) -> CrashtestReport:
    """Carry out a crash test with these options."""
    folder, program = wish.locate_program()
    people = ScriptedAnswers(wish.answers, wish.events)
    stage = CrashStage(program, wish.arguments, folder, OutsideWorld(wish.count_effects or None), wish.store, people)
    try:
        return _CrashTest(wish, stage, progress).perform()
    finally:
        stage.close()


class _CrashTest:
    """One crash test."""

    def __init__(self, wish: CrashtestOptions, stage: CrashStage, progress: Callable[[int, int], None]) -> None:
        self._wish = wish
        self._stage = stage
        self._progress = progress
        self._trials: list[RoundResult] = []
        self._failed: dict[tuple[CrashPoint, ...], CrashRound] = {}
        """Rounds that may have to be judged again."""
        self._recoveries: dict[CrashPoint, list[CrashPoint]] = {}
        self._repeats: dict[str, RepeatedRound] = {}
        self._lock = threading.Lock()
        self._notes: list[str] = []
        self._left_out = 0
        self._asked: list[tuple[str, JournaledEffect]] = []
        """Places where the outcome of an effect stayed unknown."""
        self._began = time.monotonic()

    def perform(self) -> CrashtestReport:
        interrupted = False
        undisturbed, places = 0.0, list[CrashPoint]()
        try:
            one, other = self._run_undisturbed(), self._run_undisturbed(thorough=True)
            undisturbed = sum(start.seconds for start in one.starts)
            self._peaceful = [one, other, self._run_undisturbed(beating=True)]
            self._learned = self._learn()
            self._patience = _patience(self._wish, self._peaceful)
            places = places_of(other.trail)
            self._note_outside(one)
            self._note_program(one)
            self._disturb(places, other.starts[-1].seconds)
            if not self._wish.only:
                self._look_again()
                self._confirm()
        except KeyboardInterrupt:
            interrupted = True
        return CrashtestReport(
            self._stage.program, self._wish.command(), time.monotonic() - self._began, undisturbed, len(places),
            tuple(self._trials), (*self._notes, *self._bounds(len(places))), interrupted, self._repeats,
            bool(self._wish.count_effects), bool(self._wish.only),
        )  # fmt: skip

    def _run_undisturbed(self, *, thorough: bool = False, beating: bool = False) -> CrashRound:
        seconds = self._wish.timeout or FIRST_SECONDS_MAX
        done = self._stage.run_undisturbed(seconds, thorough=thorough, beating=beating)
        self._stage.clear(done)
        printed = "\n".join(take_last_lines(done, PRINTED_MAX))
        if done.last.hung:
            raise CrashtestProblem(
                f"{self._stage.program} does not end in {done.last.seconds:.0f} s, without any disturbance"
                + "".join(f"; it waits: {wait}" for wait in done.snapshot.waits[:1])
                + f"\n{printed}",
                hint=self._stage.people.hint(done.snapshot.waits)
                or "a crash test needs a program that ends by itself; allow more time with --timeout",
            )
        if not done.snapshot.leaves:
            raise CrashtestProblem(
                f"{self._stage.program} ended with exit code {done.last.code} and left nothing in a store\n{printed}",
                hint="it fails without any disturbance: make it run first"
                if done.last.code
                else 'use the store of PERDURE_URL, as Agent("name") does, or a file in the working folder',
            )
        return done

    def _learn(self) -> ExpectedOutcome:
        first, thorough, *rest = self._peaceful
        return learn([first, *rest], thorough, self._stage.source, self._stage.source_line)

    def _note_outside(self, one: CrashRound) -> None:
        if not self._wish.count_effects:
            grown = f" {one.grown[0]}" if one.grown else ""
            grown += f", or {', '.join(one.grown[1:3])}, which also grew" if len(one.grown) > 1 else ""
            self._notes.append(f"the outside world was not counted: name it with --count-effects{grown}")
        elif not self._learned.outside:
            raise CrashtestProblem(
                f"--count-effects {self._wish.count_effects}: nothing was counted there in an undisturbed run",
                hint=did_you_mean(self._wish.count_effects, one.grown)
                or "name a file that gets a line for each effect, or a command that prints one; without effects, "
                "omit it",
            )

    def _note_program(self, one: CrashRound) -> None:
        for at in self._learned.sources.changed_copies:
            self._notes.append(
                f"{at} changes a copy: `{self._stage.source_line(at)}` is lost even without a crash. Write it back: "
                'run.state["names"] = [*run.state["names"], name]'
            )
        if one.before and not self._stage.outside.is_shared:
            self._notes.append(
                f"{self._wish.count_effects} has lines before the program starts; they are not counted, but the "
                "program sees them"
            )
        if self._learned.code:
            self._notes.append(
                f"undisturbed, it ends with exit code {self._learned.code}; it must do so after a crash too"
            )

    def _bounds(self, places: int) -> list[str]:
        found: list[str] = []
        found += note_questions(self._asked, self._learned.sources) if self._asked else ()
        if missed := sum(not trial.reached for trial in self._trials):
            found.append(f"{missed} tries came too late (it had ended, or took another path): their ok says little")
        killed = sum(
            len(t.places) == 1 and t.places[0].manner in (Disturbance.KILL, Disturbance.RAISE) for t in self._trials
        )
        if killed < places and not self._wish.only:
            others = f", and {rest} other tries" if (rest := len(self._trials) - killed) else ""
            found.append(f"{killed} of {places} places, spread evenly{others}; --limit 0 tries them all")
        if self._left_out:
            minutes = f"{self._wish.budget / 60:g} minutes"
            found.append(f"{self._left_out} tries were left out: {minutes} have passed; --budget allows more")
        return found

    def _disturb(self, places: list[CrashPoint], seconds: float) -> None:
        if self._wish.only:
            self._run_all([resolve_only(one, places) for one in self._wish.only])
            return
        share = shares_of(self._wish.limit, self._wish.depth)
        rounds = plan_rounds(places, self._peaceful[2].trail, seconds, self._wish.limit, share)
        self._run_all(rounds, len(rounds) + share.again)
        if self._wish.depth > 1:
            self._run_all(twice(self._recoveries, share.again), len(rounds) + share.again)

    def _run_all(self, rounds: PlannedRounds, expected: int = 0) -> None:
        jobs = self._wish.jobs or (1 if self._stage.outside.is_shared else min(JOBS_MAX, os.cpu_count() or 1))
        total = expected or len(rounds)
        waiting: set[Future[None]] = set()
        with ThreadPoolExecutor(jobs) as pool:
            try:
                waiting = {pool.submit(self._run_one, places) for places in rounds}
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
            finally:
                order = {tuple(place.name for place in places): number for number, places in enumerate(rounds)}
                self._trials.sort(key=lambda trial: (len(trial.places), order.get(trial.names, -1)))

    def _is_spent(self) -> bool:
        return time.monotonic() - self._began > self._wish.budget

    def _run_one(self, places: tuple[CrashPoint, ...]) -> None:
        if self._is_spent():
            with self._lock:
                self._left_out += 1
            return
        began = time.monotonic()
        # Whoever names one place wants to know what happens there: take the closer look at once.
        names = tuple(place.name for place in places)
        done = self._stage.round(names, self._patience, thorough=bool(self._wish.only))
        if self._stage.stopped:
            return
        places = _add_hit_point(places, done)
        findings = tuple(judge(self._learned, done))
        kept = bool(findings) and self._wish.keep
        if kept:
            self._stage.keep(done)
        else:
            self._stage.clear(done)
        seconds = time.monotonic() - began
        trial = RoundResult(
            places, _verdict(findings, done), done.reached, len(done.starts), seconds, findings,
            done.folder if kept else "",
        )  # fmt: skip
        with self._lock:
            self._trials.append(trial)
            if trial.verdict == RoundVerdict.ASKED:
                self._asked += [(trial.name, one) for one in done.snapshot.effects if one.asked]
            if findings:
                self._failed[places] = done
            if done.reached and len(places) == 1 and places[0].manner == Disturbance.KILL:
                self._recoveries[places[0]] = places_of(done.trail)

    def _look_again(self) -> None:
        """Before anything is blamed, run undisturbed again and ignore what differs there."""
        if not self._failed or self._is_spent():
            return
        self._peaceful += [self._run_undisturbed(), self._run_undisturbed(beating=True)]
        self._learned = self._learn()
        for number, trial in enumerate(self._trials):
            if (done := self._failed.get(trial.places)) is not None:
                findings = tuple(judge(self._learned, done))
                self._trials[number] = trial.with_verdict(_verdict(findings, done), findings)

    def _confirm(self) -> None:
        """Check that the command shown with a finding reproduces it. A closer look may reveal the cause."""
        report = CrashtestReport(self._stage.program, "", 0, 0, 0, tuple(self._trials))
        for finding, trials in report.findings()[:CONFIRMED_MAX]:
            tries = [name for trial in trials[:TRIES] for name in trial.list_reproducing_points()][:TRIES]
            for number, names in enumerate(tries, start=1):
                if self._is_spent():
                    return
                done = self._stage.round(names, self._patience, thorough=True)
                self._stage.clear(done)
                closer = _closest(finding, judge(self._learned, done))
                repeat = RepeatedRound(",".join(names), number, closer is not None)
                self._repeats[(closer or finding).identity] = repeat
                if closer is not None:
                    self._trials = [trial.closer(finding, closer) for trial in self._trials]
                    break


def _closest(finding: CrashFinding, found: Sequence[CrashFinding]) -> CrashFinding | None:
    """Return what a closer look says about a finding: the same, or its cause.

    A symptom alone does not confirm a cause.
    """
    same = [one for one in found if one.kind == finding.kind]
    causes = [one for one in found if not one.is_symptom]
    order = [*same, *causes] if not finding.is_symptom else [*causes, *same, *found]
    return next(iter(order), None)


def _add_hit_point(places: tuple[CrashPoint, ...], done: CrashRound) -> tuple[CrashPoint, ...]:
    """Add the place that a random instant hit."""
    first, *more = places
    if first.manner != Disturbance.INSTANT or done.instant is None or not done.reached:
        return places
    at = done.instant
    return (CrashPoint(first.name, at.words, at.at, at.inside, at.name), *more)


def _verdict(findings: Sequence[CrashFinding], done: CrashRound) -> RoundVerdict:
    return RoundVerdict.FAILED if findings else RoundVerdict.ASKED if done.snapshot.asked else RoundVerdict.SURVIVED


def _patience(wish: CrashtestOptions, peaceful: Sequence[CrashRound]) -> RoundTimeouts:
    """Derive time limits from the undisturbed runs, with a margin for a busy machine."""
    longest = max(start.seconds for done in peaceful for start in done.starts)
    return RoundTimeouts(peaceful[1].last.code, wish.timeout or max(20.0, 10 * longest), 0.5 + 1.5 * longest)
