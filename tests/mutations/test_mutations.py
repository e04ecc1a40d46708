"""Every mutant is noticed by the test that it names."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.budget import sample
from tests.mutations.broken_copies import Outcome, Workshop, explain_failure, name_in_report
from tests.mutations.edit import BadMutant, Edit
from tests.mutations.mutant import Mutant
from tests.mutations.mutants import MUTANTS

# The first one waits for the original too, and all of them for each other.
pytestmark = pytest.mark.timeout(900)

WORKERS = max(2, os.cpu_count() or 2)
"""Each is a process of its own that mostly computes."""


class Line:
    """How many have been tried, in a terminal."""

    def __init__(self, config: pytest.Config, total: int) -> None:
        self._capture = config.pluginmanager.getplugin("capturemanager")
        self._total = total
        self._done = 0

    def step(self, name: str) -> None:
        """One more."""
        self._done += 1
        if self._capture is None or not sys.__stderr__ or not os.isatty(2):
            return
        with self._capture.global_and_fixture_disabled():
            end = "\n" if self._done == self._total else ""
            sys.__stderr__.write(f"\r\x1b[Kmutants: {self._done}/{self._total} {name}{end}")
            sys.__stderr__.flush()


@pytest.fixture(scope="module")
def line(request: pytest.FixtureRequest) -> Line:
    return Line(request.config, len(wanted(request)))


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    made = Workshop(tmp_path_factory.mktemp("mutants"))
    made.build()
    yield made
    made.stop()


def wanted(request: pytest.FixtureRequest) -> list[Mutant]:
    """Those whose test was selected: `-k fence` tries only these."""
    chosen = {item.callspec.id for item in request.session.items if hasattr(item, "callspec")}
    return [one for one in MUTANTS if one.name in chosen]


@pytest.fixture(scope="module")
def original(workshop: Workshop, request: pytest.FixtureRequest) -> Outcome:
    """How the named tests end where nothing is broken. Also compiles what all mutants share."""
    return workshop.try_original(one.test for one in wanted(request))


@pytest.fixture(scope="module")
def outcomes(
    workshop: Workshop, original: Outcome, request: pytest.FixtureRequest
) -> Iterator[dict[str, Future[Outcome]]]:
    """All of them on their way, as many at a time as there are cores."""
    with ThreadPoolExecutor(WORKERS) as pool:
        yield {one.name: pool.submit(workshop.try_mutant, one) for one in wanted(request)}
        pool.shutdown(wait=False, cancel_futures=True)
        workshop.stop()


CHOSEN = MUTANTS if os.environ.get("PERDURE_MUTANTS") == "all" else sample(MUTANTS, 20)
"""`make soak` tries all of them; so does `PERDURE_MUTANTS=all` without its other long tests."""


@pytest.mark.sampled
@pytest.mark.parametrize("one", CHOSEN, ids=lambda one: one.name)
def test_a_mutant_is_noticed(one: Mutant, original: Outcome, outcomes: dict[str, Future[Outcome]], line: Line) -> None:
    name = name_in_report(one.test)
    if name in original.other:
        pytest.skip(f"{one.test} cannot run here: {original.other[name]}")
    assert name in original.passed, f"{one.test} fails without any mutant\n{original.output}"
    why = explain_failure(one, outcomes[one.name].result())
    line.step(one.name)
    assert why


def test_names_are_told_apart() -> None:
    names = [one.name for one in MUTANTS]
    assert len(names) == len(set(names)) >= 140


# -- the workshop itself --------------------------------------------------------------------------------------

PASSES = "conformance/test_steps.py::test_a_step_runs_once_and_is_remembered"


@pytest.mark.parametrize(
    ("old", "new", "error", "complaint"),
    [
        ("1000", "1001", AssertionError, "nobody noticed"),
        ("SEAL_EVENTS = 1000", "seal_events = 1", BadMutant, "could not run"),
        ("1000", "= 1", BadMutant, "neither an expression nor statements"),
        ("1000", "1000  # as it was", BadMutant, "changes nothing"),
    ],
)
def test_a_mutant_that_shows_nothing_is_not_taken_for_a_noticed_one(
    workshop: Workshop, old: str, new: str, error: type[Exception], complaint: str
) -> None:
    one = Mutant("bad", "nothing", PASSES, (Edit("perdure.values.limits:SEAL_EVENTS", old, new),))
    with pytest.raises(error, match=complaint):
        explain_failure(one, workshop.try_mutant(one))


CODE = """
class Door:
    def open(self):
        if self.locked and not self.broken:  # or kicked in
            knock(self, "loudly")
            return wait(self)
        return True

def open():
    return True
"""


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("self.locked and (not self.broken)", "False", "if False:"),
        ("not self.broken", "", "if self.locked:"),
        ("knock(self, 'loudly')", "", "(not self.broken):\n            return wait(self)"),
        ("knock(..., 'loudly')", "knock(..., 'softly')", "knock(self, 'softly')"),
        ("if ...:\n    ...", "while ...:\n    ...", "while self.locked and (not self.broken):\n            knock("),
        ("return True", "return False", "return False\n\ndef open():\n    return True"),
    ],
)
def test_code_is_found_by_its_shape_within_its_function(tmp_path: Path, old: str, new: str, line: str) -> None:
    (tmp_path / "door.py").write_text(CODE)
    assert line in Edit("door:Door.open", old, new).apply(tmp_path / "door.py")


def test_sql_is_found_by_its_query(tmp_path: Path) -> None:
    (tmp_path / "q.sql").write_text("-- name: a()\nSELECT 1\n  FROM t;\n-- name: b()\nSELECT 1 FROM t;\n")
    changed = Edit("q:a", "1 FROM t", "2 FROM t").apply(tmp_path / "q.sql")
    assert changed == "-- name: a()\nSELECT 2 FROM t;\n-- name: b()\nSELECT 1 FROM t;\n"


@pytest.mark.parametrize(("where", "old", "times"), [("Door", "return ...", 2), ("Door.close", "True", 0)])
def test_a_mutant_of_code_that_has_changed_is_told(tmp_path: Path, where: str, old: str, times: int) -> None:
    (tmp_path / "door.py").write_text(CODE)
    with pytest.raises(BadMutant, match=f"door:{where} has this {times} times, not once"):
        Edit(f"door:{where}", old, "new").apply(tmp_path / "door.py")


def test_a_broken_mutant_is_not_a_noticed_one() -> None:
    failed = Outcome(1, frozenset(), {"tests.unit.test_x::test_x": "NameError: name 'y' is not defined"}, {}, "")
    with pytest.raises(BadMutant, match="not wrong but broken"):
        explain_failure(Mutant("m", "b", "unit/test_x.py::test_x", ()), failed)
