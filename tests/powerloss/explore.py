"""Records workloads, cuts the power at every point of their logs, and counts the verdicts.

    python -m tests.powerloss.explore '{"setups": [{"seed": 1}], "chances": 2}'
    python -m tests.powerloss.explore record '{"seed": 1}' > recording

A process of its own: forking is only safe where no thread runs, and the tests start one such process per core.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator

import msgspec

from perdure.errors import StoreMovedWarning

from . import judge as j
from .disk import Disk, Image
from .workload import Recording, Setup, record


class Plan(msgspec.Struct, frozen=True):
    """What one process explores."""

    setups: list[Setup]
    chances: int = 2
    """How many reordered and how many torn images at each point, beside the two extremes."""
    closely_every: int = 8
    """Of how many images one has its chains computed, and its views compared with the journal,"""
    take_up_every: int = 0
    """one is taken up by an agent that brings the runs to their end,"""
    deep_every: int = 0
    """and one becomes the disk on which the power is cut once more. 0: none."""


class Report(msgspec.Struct):
    """What came out."""

    verdicts: dict[str, int] = msgspec.field(default_factory=dict)
    closely: int = 0
    taken_up: dict[str, int] = msgspec.field(default_factory=dict)
    deep: int = 0
    acked: int = 0
    bad: list[str] = msgspec.field(default_factory=list)

    @property
    def images(self) -> int:
        return sum(self.verdicts.values())

    def tell(self, verdict: str, why: str, where: str) -> None:
        """Keep the story of the first bad ones."""
        if verdict != j.OK and len(self.bad) < 5:
            self.bad.append(f"{where}: {why}")

    def add(self, other: Report) -> None:
        """Sum up."""
        self.verdicts = dict(Counter(self.verdicts) + Counter(other.verdicts))
        self.closely += other.closely
        self.taken_up = dict(Counter(self.taken_up) + Counter(other.taken_up))
        self.deep += other.deep
        self.acked += other.acked
        self.bad += other.bad


class Point(msgspec.Struct, frozen=True):
    """A power cut: an image and what was known when it happened."""

    where: str
    image: Image
    acked: int
    known: set[str]
    happened: set[str]


def points(recording: Recording, rng: random.Random, chances: int, start: Point | None = None) -> Iterator[Point]:
    """Every power cut of a recording."""
    disk = Disk(start.image if start else None)
    known, happened = set(start.known if start else ()), set(start.happened if start else ())
    acked = 0
    for number, op in enumerate(recording.log, start=1):
        if op.kind == "ack":
            acked = op.offset
            known |= {op.file} - {""}
        elif op.kind == "effect":
            happened.add(op.file)
            continue
        disk.apply(op)
        for variant, image in disk.images(rng, chances):
            yield Point(f"after {number} operations, {variant}", image, acked, set(known), set(happened))


def explore(plan: Plan) -> Report:
    """Everything that the plan asks for."""
    report = Report()
    for setup in plan.setups:
        recording = record_in_child(setup, {}, None)
        _explore(plan, setup, recording, None, report)
    return report


def _explore(plan: Plan, setup: Setup, recording: Recording, start: Point | None, report: Report) -> None:
    rng = random.Random(f"{setup.seed}/{start.where if start else ''}")
    report.acked += len(recording.history) - 1
    with j.Judge(recording) as judge:
        for number, point in enumerate(points(recording, rng, plan.chances if start is None else 1, start)):
            where = f"{setup}, {start.where + ', then ' if start else ''}{point.where}"
            closely = number % plan.closely_every == 0
            verdict, why = judge.judge(point.image, point.acked, closely=closely)
            report.verdicts[verdict] = report.verdicts.get(verdict, 0) + 1
            report.closely += closely
            report.tell(verdict, why, where)
            if verdict == j.OK and start is None:
                _go_on(plan, setup, recording, point, number, report)


def _go_on(plan: Plan, setup: Setup, recording: Recording, point: Point, number: int, report: Report) -> None:
    """See what becomes of an image when somebody works with it."""
    if plan.take_up_every and number % plan.take_up_every == 0:
        verdict, why = j.take_up(point.image, setup, recording, point.known, point.happened)
        report.taken_up[verdict] = report.taken_up.get(verdict, 0) + 1
        report.tell(verdict, why, f"{setup}, {point.where}")
    if plan.deep_every and number % plan.deep_every == plan.deep_every // 2:
        report.deep += 1
        _explore(plan, setup, record_in_child(setup, point.image, point.happened), point, report)


def record_in_child(setup: Setup, image: Image, happened: set[str] | None) -> Recording:
    """Record in a process that is dead afterwards, so that its leases can be taken over at once."""
    with (
        j.lay_out_image(image) as folder,
        tempfile.NamedTemporaryFile(prefix="perdure-power-", dir=os.path.dirname(folder)) as target,
    ):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                warnings.simplefilter("ignore", StoreMovedWarning)
                target.write(msgspec.msgpack.encode(record(folder, setup, happened)))
                target.flush()
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        if status != 0:
            raise RuntimeError(f"recording {setup} ended with status {status}")
        with open(target.name, "rb") as file:
            return msgspec.msgpack.decode(file.read(), type=Recording)


def main() -> None:
    if sys.argv[1] == "record":
        recording = record_in_child(msgspec.json.decode(sys.argv[2], type=Setup), {}, None)
        sys.stdout.buffer.write(msgspec.msgpack.encode(recording))
    else:
        report = explore(msgspec.json.decode(sys.argv[1], type=Plan))
        sys.stdout.buffer.write(msgspec.json.encode(report))


if __name__ == "__main__":
    main()
