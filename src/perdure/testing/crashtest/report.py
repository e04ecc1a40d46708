"""The report of a crash test: for people, for programs, for continuous integration."""

from __future__ import annotations

import shlex
import textwrap
from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from typing import Any
from xml.etree import ElementTree

import msgspec

from perdure.testing.crashtest.findings import CrashFinding
from perdure.testing.crashtest.messages import Disturbance
from perdure.testing.crashtest.places import AGAIN, GROUPS, CrashPoint

ONLY_HERE = "{only}"

WIDTH = 80
"""The width of text for people. Commands are never broken."""


class RoundVerdict(StrEnum):
    """How a round ended."""

    SURVIVED = "survived"
    ASKED = "asked"
    """A person must settle an effect: nothing is lost and nothing is repeated."""
    FAILED = "FAILED"


class RoundResult(msgspec.Struct, frozen=True):
    """One round."""

    places: tuple[CrashPoint, ...]
    verdict: RoundVerdict
    reached: bool
    starts: int
    seconds: float
    findings: tuple[CrashFinding, ...] = ()
    folder: str = ""
    """Where it can be inspected, if it was kept."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(place.name for place in self.places)

    @property
    def name(self) -> str:
        """The name for `--only`."""
        return ",".join(self.names)

    @property
    def group(self) -> str:
        """The row of the matrix."""
        return AGAIN if len(self.places) > 1 else GROUPS[self.places[0].manner]

    @property
    def words(self) -> str:
        """What was done to the program, and where."""
        first, *more = self.places
        return first.description() + "".join(f", and {AGAIN} ({place.name})" for place in more)

    def list_reproducing_points(self) -> list[tuple[str, ...]]:
        """Return the places that reproduce it, surest first: a random instant is never exactly the same."""
        first, *_ = self.places
        return [*([(first.nearest,)] if first.nearest else []), self.names]

    def with_verdict(self, verdict: RoundVerdict, findings: tuple[CrashFinding, ...]) -> RoundResult:
        """Return the round with another verdict."""
        return msgspec.structs.replace(self, verdict=verdict, findings=findings)

    def closer(self, finding: CrashFinding, seen: CrashFinding) -> RoundResult:
        """Return the round with the cause that a closer look has shown."""
        located = msgspec.structs.replace(seen, evidence=())
        findings = (
            msgspec.structs.replace(located, evidence=one.evidence) if one.identity == finding.identity else one
            for one in self.findings
        )
        return msgspec.structs.replace(self, findings=tuple(findings))


class RepeatedRound(msgspec.Struct, frozen=True):
    """A round that was repeated, to see whether it shows a finding again."""

    only: str
    tries: int
    shown: bool


class CrashtestReport(msgspec.Struct, frozen=True):
    """The outcome of a crash test.

    >>> report = crashtest("agent.py", count_effects="outside.txt")
    >>> report.survived
    True
    """

    program: str
    command: str
    """The command, with `ONLY_HERE` in the place of `--only`: before the arguments of the program."""
    seconds: float
    undisturbed_seconds: float
    places_in_all: int
    trials: tuple[RoundResult, ...]
    notes: tuple[str, ...] = ()
    interrupted: bool = False
    repeats: dict[str, RepeatedRound] = {}
    """By the identity of a finding."""
    counted: bool = True
    """Whether effects were counted outside too."""
    chosen: bool = False
    """Whether only named places were tried."""

    @property
    def survived(self) -> bool:
        """Whether nothing wrong was found."""
        return all(trial.verdict != RoundVerdict.FAILED for trial in self.trials)

    @property
    def asked(self) -> int:
        """In how many tries a person is asked about an effect."""
        return sum(trial.verdict == RoundVerdict.ASKED for trial in self.trials)

    def assert_survives(self) -> None:
        """Raise AssertionError with all findings. For tests."""
        if not self.survived:
            raise AssertionError("\n".join(self.lines()))

    def findings(self) -> list[tuple[CrashFinding, list[RoundResult]]]:
        """Return what to change, each with the rounds that show it, most frequent first."""
        found: dict[str, tuple[CrashFinding, list[RoundResult]]] = {}
        for trial in self.trials:
            for finding in {one.identity: one for one in trial.findings}.values():
                found.setdefault(finding.identity, (finding, []))[1].append(trial)
        for _, trials in found.values():
            trials.sort(key=lambda trial: (len(trial.places), bool(trial.places[0].nearest)))
        return sorted(found.values(), key=lambda one: (one[0].is_symptom or not one[0].at, -len(one[1])))

    def matrix(self) -> list[tuple[str, int, int, int, int]]:
        """Return the rows: what was done, how often, survived, asked, failed. Kills are listed by place."""
        rows: dict[str, Counter[str]] = {}
        for trial in self.trials:
            kill = trial.group == GROUPS[Disturbance.KILL]
            rows.setdefault(trial.places[0].words if kill else trial.group, Counter())[trial.verdict] += 1
        rows |= {group: rows.pop(group, Counter()) for group in (*list(GROUPS.values())[1:], AGAIN)}
        return [(words, c.total(), c["survived"], c["asked"], c["FAILED"]) for words, c in rows.items()]

    def make_reproduce_command(self, finding: CrashFinding, trials: list[RoundResult]) -> str:
        """Return the command that reproduces a finding."""
        repeat = self.repeats.get(finding.identity)
        return self.make_repeat_command(repeat.only if repeat else trials[0].name)

    def make_repeat_command(self, only: str) -> str:
        """Return the command that repeats one round."""
        return self.command.replace(ONLY_HERE, f"--only {shlex.quote(only)}")

    def lines(self) -> Iterator[str]:
        """Yield the whole report for people."""
        yield f"{self.program} was disturbed {_format_count(len(self.trials), 'time')} and started again until it ended"
        yield ""
        yield from self._table()
        yield ""
        shown, rest = self._split_symptoms()
        for number, (finding, trials) in enumerate(shown, start=1):
            yield from self._finding_lines(number, finding, trials)
        if rest:
            seen = ", ".join(
                f"{finding.kind} in {_format_count(len(trials), 'try', 'tries')}" for finding, trials in rest
            )
            yield from _wrap(f"{seen}. The cause is most likely the same: fix it, and test again.", "also: ", "      ")
            yield ""
        for note in self.notes:
            yield from _wrap(note, "note: ", "      ")
        yield self.summary()

    def summary(self) -> str:
        """Return the result in one line."""
        failed = sum(trial.verdict == RoundVerdict.FAILED for trial in self.trials)
        tail = f" (in {self.asked} a person is asked about an effect)" if self.asked else ""
        if not self.trials:
            return "nothing was tried"
        begun = "interrupted; so far: " if self.interrupted else ""
        if failed:
            things = _format_count(len(self._split_symptoms()[0]), "thing")
            tries = _format_count(len(self.trials), "try", "tries")
            return f"{begun}FAILED: {failed} of {tries}, {things} to change{tail}"
        by = "" if self.counted else ", going by the store alone"
        tries = f"all {len(self.trials)} tries" if len(self.trials) > 1 else "1 try"
        return f"{begun}survived: {tries}{by}{tail}"

    def _split_symptoms(
        self,
    ) -> tuple[list[tuple[CrashFinding, list[RoundResult]]], list[tuple[CrashFinding, list[RoundResult]]]]:
        """Separate the findings to explain from those that are probably other symptoms of them."""
        found = self.findings()
        causes = [one for one in found if one[0].at and not one[0].is_symptom]
        return (causes, [one for one in found if one not in causes]) if causes else (found, [])

    def _table(self) -> Iterator[str]:
        rows = [
            (words, tries, survived, asked, failed)
            for words, tries, survived, asked, failed in self.matrix()
            if tries or not self.chosen
        ]
        groups = {*GROUPS.values(), AGAIN}
        width = max(len(row[0]) + 2 * (row[0] not in groups) for row in rows)
        yield f"{'':{width}}  tries    ok  asked  FAILED"
        if rows[0][0] not in groups:
            yield GROUPS[Disturbance.KILL]
        for words, tries, survived, asked, failed in rows:
            shown = words if words in groups else f"  {words}"
            if not tries:
                yield f"{shown:{width}}  {'-':>5}" + ("  (--depth 2)" if words == AGAIN else "")
            else:
                yield f"{shown:{width}}  {tries:5}  {survived or '.':>4}  {asked or '.':>5}  {failed or '.':>6}"

    def _finding_lines(self, number: int, finding: CrashFinding, trials: list[RoundResult]) -> Iterator[str]:
        repeat = self.repeats.get(finding.identity)
        # Show the example that `again` repeats.
        again = [one for one in trials if repeat and repeat.only in map(",".join, one.list_reproducing_points())]
        example = (again or trials)[0]
        evidence = next(one.evidence for one in example.findings if one.identity == finding.identity)
        yield from _wrap(finding.title, f"{number}. ", "   ")
        yield f"   what     {finding.kind}, in {_format_count(len(trials), 'try', 'tries')} of {len(self.trials)}"
        if finding.at:
            yield f"   where    {finding.at}  {finding.line}"
        where = f" ({example.places[0].at})" if example.places[0].at else ""
        yield from _part("e.g.", f"{example.words}{where}")
        for line in evidence:
            yield from _part("", line)
        yield from _part("change", finding.change)
        yield f"   again    {self.make_reproduce_command(finding, trials)}"
        if repeat is not None and not repeat.shown:
            yield from _part("", f"(it did not show again in {_format_count(repeat.tries, 'more try', 'more tries')})")
        if example.folder:
            yield f"   kept     {example.folder}"
        yield ""

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON types."""
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
                    "again": self.make_reproduce_command(finding, trials),
                    "shown_again": repeat.shown if (repeat := self.repeats.get(finding.identity)) else None,
                }
                for finding, trials in self.findings()
            ],
            "rounds": [
                {
                    "place": trial.name,
                    "what": trial.words,
                    "group": trial.group,
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
        """Return a JUnit report with a test case for each round."""
        failed = sum(trial.verdict == RoundVerdict.FAILED for trial in self.trials)
        counts = {"tests": str(len(self.trials)), "failures": str(failed), "errors": "0"}
        head = {"name": f"crashtest {self.program}", "time": f"{self.seconds:.3f}", **counts}
        suite = ElementTree.Element("testsuite", head)
        for trial in self.trials:
            name = f"{trial.words} [{trial.name}]"
            case = ElementTree.SubElement(
                suite, "testcase", classname=self.program, name=name, time=f"{trial.seconds:.3f}"
            )
            for finding in trial.findings:
                told = "\n".join((finding.at, *finding.evidence, f"change: {finding.change}"))
                ElementTree.SubElement(case, "failure", message=finding.title, type=finding.kind).text = told
        return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _part(title: str, text: str) -> Iterator[str]:
    """Format a titled part of a finding."""
    first = f"   {title:9}"
    yield from _wrap(text, first, " " * 12) or [first.rstrip()]


def _wrap(text: str, first: str, rest: str) -> list[str]:
    """Wrap text without breaking options and names."""
    return textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )


def _format_count(count: int, one: str, many: str = "") -> str:
    return f"{count} {one}" if count == 1 else f"{count} {many or one + 's'}"
