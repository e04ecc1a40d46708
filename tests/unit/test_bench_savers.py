"""The section `langgraph` of the benchmark: its page, its bars, and a saver in a process that obeys."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from bench.comparison.standings import SQLITE
from bench.lab import Lab
from bench.pages import words, write_pages
from bench.report import Report
from bench.rows import Verdict
from bench.savers import sections
from bench.savers.race import Player
from bench.savers.standings import ENTRIES, KINDS, MEMORY, Entry, Looped, SaverStanding, Talked, Times


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(quick=True, base=tmp_path, peers=False)
    yield lab
    lab.close()


def make_standing(entry: Entry, *, ms: float, size: int) -> SaverStanding:
    times = Times(ms, ms * 2)
    talk = Talked(times, times, times, times, times, times, ms, {1000: size})
    loop = Looped(ms, ms, size)
    return SaverStanding(entry, "1.0", "full", dict.fromkeys(KINDS, talk), loop, 100, 200, loop, loop)


def standings(*, ms: float, size: int) -> dict[Entry, SaverStanding]:
    """Ours beside theirs, which take 10 ms and 300 MB each."""
    return {
        entry: make_standing(entry, ms=ms, size=size) if entry.ours else make_standing(entry, ms=10, size=300_000_000)
        for entry in ENTRIES
    }


def test_the_bars_are_those_of_the_design() -> None:
    good, bad = standings(ms=2, size=2_000_000), standings(ms=11, size=200_000_000)
    for found, wanted in ((good, {Verdict.OK, Verdict.FIGURE}), (bad, {Verdict.OK, Verdict.FAIL, Verdict.FIGURE})):
        rows = [*sections._sqlite_rows(found), *sections._postgres_rows(found)]
        assert {row.verdict for row in rows} == wanted
    barred = [row for row in rows if row.bar is not None]
    assert [row.verdict for row in barred] == [Verdict.FAIL] * 8 + [Verdict.OK], "only the threads scale"


def test_the_page_has_no_empty_slots(tmp_path: Path) -> None:
    found = standings(ms=2, size=2_000_000)
    machine = dict.fromkeys(("cores", "processor", "system", "file_system", "python", "sqlite", "postgres"), "x")
    report = Report(
        "2026-01-01", machine, 0, 0, False, True, list(sections._sqlite_rows(found)), [], [], [*found.values()]
    )
    assert msgspec.json.decode(msgspec.json.encode(report), type=Report) == report
    assert write_pages(None, tmp_path, savers=report) == [tmp_path / "guides" / "langgraph.md"]
    page = (tmp_path / "guides" / "langgraph.md").read_text("utf-8")
    assert not words.SLOT.search(page)
    assert "| PerdureSaver, PostgreSQL | 2 |" in page


@pytest.mark.parametrize("entry", [Entry("InMemorySaver", MEMORY), Entry("Async PerdureSaver", SQLITE)])
def test_a_saver_does_what_it_is_told(lab: Lab, entry: Entry) -> None:
    player = Player(lab, entry, sys.executable)
    player.wait_opened()
    assert len(player.do("steps", thread="talk", kind="messages", first=0, size=3)["puts"]) == 3
    assert len(player.do("gets", thread="talk", times=2, messages=3)["gets"]) == 2
    assert player.do("loop", thread="loop", steps=3)["ms"] > 0
    assert player.do("crowd", count=2, steps=2)["together"] > 0
    assert (player.bytes() > 0) is (entry.store == SQLITE)
    player.close()
