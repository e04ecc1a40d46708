"""What a crash test has found: for people, for programs, for continuous integration."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from typing import Any
from xml.etree import ElementTree

import msgspec

from .findings import Finding
from .places import Place

ONLY_HERE = "{only}"


class Verdict(StrEnum):
    """How a round ended."""

    SURVIVED = "survived"
    ASKED = "asked"
    """A person has to say what became of an effect: nothing is lost and nothing is repeated."""
    FAILED = "FAILED"


class Trial(msgspec.Struct, frozen=True):
    """One round."""

    places: tuple[Place, ...]
    verdict: Verdict
    reached: bool
    starts: int
    seconds: float
    findings: tuple[Finding, ...] = ()
    folder: str = ""
    """Where it can be looked at, if it was kept."""

    @property
    def name(self) -> str:
        """As `--only` takes it."""
        return ",".join(place.name for place in self.places)

    @property
    def words(self) -> str:
        from .places import AGAIN

        return AGAIN if len(self.places) > 1 else self.places[0].words


class Report(msgspec.Struct, frozen=True):
    """The outcome of a crash test.

    >>> report = crashtest("agent.py", count_effects="outside.txt")
    >>> report.survived
    True
    """

    program: str
    command: str
    """What was asked for, with `ONLY_HERE` in the place of `--only`: before the arguments of the program."""
    seconds: float
    undisturbed_seconds: float
    places_in_all: int
    trials: tuple[Trial, ...]
    notes: tuple[str, ...] = ()
    interrupted: bool = False

    @property
    def survived(self) -> bool:
        """Whether nothing wrong was found."""
        return all(trial.verdict != Verdict.FAILED for trial in self.trials)

    def assert_survives(self) -> None:
        """For tests: raises AssertionError with everything that was found."""
        if not self.survived:
            raise AssertionError("\n".join(self.lines()))

    def findings(self) -> list[tuple[Finding, list[Trial]]]:
        """What to change, each with the rounds that show it, the most frequent first."""
        found: dict[tuple[str, str, str], tuple[Finding, list[Trial]]] = {}
        for trial in self.trials:
            for finding in {one.identity: one for one in trial.findings}.values():
                found.setdefault(finding.identity, (finding, []))[1].append(trial)
        return sorted(found.values(), key=lambda one: -len(one[1]))

    def matrix(self) -> list[tuple[str, int, int, int, int]]:
        """Where it was killed: how often, survived, asked, failed."""
        rows: dict[str, Counter[str]] = {}
        for trial in self.trials:
            rows.setdefault(trial.words, Counter())[trial.verdict] += 1
        return [(words, sum(c.values()), c["survived"], c["asked"], c["FAILED"]) for words, c in rows.items()]

    def again(self, trial: Trial) -> str:
        """The command that repeats one round."""
        return self.command.replace(ONLY_HERE, f"--only {shlex.quote(trial.name)}")

    def lines(self) -> Iterator[str]:
        """All of it, for people."""
        yield f"{self.program} was killed at {_counted(len(self.trials), 'place')} and started again until it ended"
        yield ""
        yield from self._table()
        yield ""
        for number, (finding, trials) in enumerate(self.findings(), start=1):
            yield from self._told(number, finding, trials)
        yield from (f"note: {note}" for note in self.notes)
        yield self.summary()

    def summary(self) -> str:
        """One line."""
        asked = sum(trial.verdict == Verdict.ASKED for trial in self.trials)
        failed = sum(trial.verdict == Verdict.FAILED for trial in self.trials)
        tail = f" ({_counted(asked, 'time')} a person has to say what became of an effect)" if asked else ""
        if not self.trials:
            return "nothing was tried"
        begun = "interrupted; so far: " if self.interrupted else ""
        if failed:
            things = _counted(len(self.findings()), "thing")
            return f"{begun}FAILED: {failed} of {_counted(len(self.trials), 'kill')}, {things} to change{tail}"
        return f"{begun}survived: all {_counted(len(self.trials), 'kill')}{tail}"

    def _table(self) -> Iterator[str]:
        rows = self.matrix()
        width = max([len(row[0]) for row in rows] + [len("killed")])
        yield f"{'killed':{width}}  kills  survived  asked  FAILED"
        for words, kills, survived, asked, failed in rows:
            yield f"{words:{width}}  {kills:5}  {survived or '.':>8}  {asked or '.':>5}  {failed or '.':>6}"

    def _told(self, number: int, finding: Finding, trials: list[Trial]) -> Iterator[str]:
        example = trials[0]
        yield f"{number}. {finding.title}"
        yield f"   what     {finding.kind}, in {_counted(len(trials), 'round')} of {len(self.trials)}"
        if finding.at:
            yield f"   where    {finding.at}  {finding.line}"
        where = f" (at {example.places[0].at})" if example.places[0].at else ""
        yield f"   e.g.     killed {example.words}{where}"
        yield from (f"            {line}" for line in finding.evidence)
        yield f"   change   {finding.change}"
        yield f"   again    {self.again(example)}"
        if example.folder:
            yield f"   kept     {example.folder}"
        yield ""

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "program": self.program,
            "survived": self.survived,
            "interrupted": self.interrupted,
            "seconds": round(self.seconds, 3),
            "undisturbed_seconds": round(self.undisturbed_seconds, 3),
            "places_in_all": self.places_in_all,
            "findings": [
                {
                    "kind": finding.kind,
                    "title": finding.title,
                    "at": finding.at,
                    "change": finding.change,
                    "evidence": list(finding.evidence),
                    "rounds": len(trials),
                    "again": self.again(trials[0]),
                }
                for finding, trials in self.findings()
            ],
            "rounds": [
                {
                    "place": trial.name,
                    "killed": trial.words,
                    "at": trial.places[0].at,
                    "verdict": trial.verdict.value,
                    "reached": trial.reached,
                    "starts": trial.starts,
                    "seconds": round(trial.seconds, 3),
                    "folder": trial.folder,
                }
                for trial in self.trials
            ],
            "notes": list(self.notes),
        }

    def as_junit(self) -> str:
        """For continuous integration: a test case for each round."""
        failed = sum(trial.verdict == Verdict.FAILED for trial in self.trials)
        counts = {"tests": str(len(self.trials)), "failures": str(failed), "errors": "0"}
        head = {"name": f"crashtest {self.program}", "time": f"{self.seconds:.3f}", **counts}
        suite = ElementTree.Element("testsuite", head)
        for trial in self.trials:
            name = f"killed {trial.words} [{trial.name}]"
            case = ElementTree.SubElement(
                suite, "testcase", classname=self.program, name=name, time=f"{trial.seconds:.3f}"
            )
            for finding in trial.findings:
                told = "\n".join((finding.at, *finding.evidence, f"change: {finding.change}"))
                ElementTree.SubElement(case, "failure", message=finding.title, type=finding.kind).text = told
        return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _counted(count: int, one: str) -> str:
    return f"{count} {one}" if count == 1 else f"{count} {one}s"
