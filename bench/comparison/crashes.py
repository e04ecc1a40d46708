"""The crash matrix: where a process can die around an effect, and how often the effect happened in the end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ..failures import Killed, MeasurementFailed
from ..lab import run
from .arena import Arena
from .standings import Crash, Entrant

CELLS = {
    "before": "killed before the effect",
    "after": "killed after the effect, before its record",
    "recorded": "killed in the next step, when it had returned",
    "raises": "the effect happens, then raises",
}
ATTEMPT_SECONDS_MAX = 60


class Way(msgspec.Struct, frozen=True):
    """A way to write the payment in a system."""

    title: str
    system: str
    effect: bool = False
    check: bool = False


WAYS = (
    Way("Perdure effect with a check", "perdure", effect=True, check=True),
    Way("Perdure effect", "perdure", effect=True),
    Way("Perdure step", "perdure"),
    Way("DBOS step", "dbos"),
    Way("LangGraph task", "langgraph"),
)


def crashes(arena: Arena, trials: int, racing_trials: int) -> Iterator[Crash]:
    """Every cell of every way on every store. What depends on a race is tried more often."""
    for entrant in arena.entrants():
        if entrant.system == "floor" or entrant.kind == "effect":
            continue
        for way in (way for way in WAYS if way.system == entrant.system):
            for cell in CELLS:
                count = racing_trials if cell == "recorded" and way.system == "langgraph" else trials
                yield _cell(arena, entrant, way, cell, count)


def _cell(arena: Arena, entrant: Entrant, way: Way, cell: str, trials: int) -> Crash:
    found = [_trial(arena, entrant, way, cell) for _ in range(trials)]
    ends = sorted({end for _, end in found})
    return Crash(way.title, entrant.store, cell, [happened for happened, _ in found], ", ".join(ends))


def _trial(arena: Arena, entrant: Entrant, way: Way, cell: str) -> tuple[int, str]:
    """Payments in the end, and what the second process was told."""
    place = arena.place(entrant)
    folder = place.folder or arena.folder(entrant)
    outside = folder / "outside.txt"
    spec = {"system": way.system, "url": place.url, "outside": str(outside), "effect": way.effect, "check": way.check}
    first = _attempt(arena.python(entrant), spec | {"dies": cell})
    if (first is None) != (cell != "raises"):
        raise MeasurementFailed(f"{way.title}, {CELLS[cell]}: the first process ended with {first}")
    second = _attempt(arena.python(entrant), spec | {"dies": ""})
    if second is None:
        raise MeasurementFailed(f"{way.title}, {CELLS[cell]}: the second process was killed, and not by us")
    return _payments(outside), second


def _attempt(python: str, spec: dict[str, object]) -> str | None:
    """How a process says that its run ended; None when it was killed."""
    command = [python, "-m", "bench.peers.crash", json.dumps(spec)]
    try:
        said = run(command, seconds=ATTEMPT_SECONDS_MAX)
    except Killed:
        return None
    return str(json.loads(said.splitlines()[-1])["ended"])


def _payments(outside: Path) -> int:
    return outside.read_text("utf-8").count("PAY") if outside.exists() else 0
