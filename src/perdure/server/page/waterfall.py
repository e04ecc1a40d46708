"""The waterfall of a run: a bar for each call, the processes as bands, and their ends as lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from perdure import records as r
from perdure.run.prices import NANOS
from perdure.run.timeline import WORK, RunTimeline, SectionOpening, TimeAxis, TimelineBuilder, TimelineRow

WIDTH = 1000
"""Of the picture, in its own units: the browser stretches it."""
BAR_MIN = 3
REPLAY_WIDTH = 12
LOST = ("killed", "taken over")
MADE_UP = "note"
WRITES = ("messages", "state", "events")
"""Rows that stand for many writes, from the first to the last."""


class WaterfallBar(msgspec.Struct, frozen=True):
    """One row: a call, a wait, a loop, a child."""

    seq: int
    what: str
    name: str
    status: str
    phase: str
    x: int
    width: int
    took_ms: int
    tries: int
    count: int
    cost: float
    replays: list[int]
    """Where later processes took its result from the journal."""
    notes: str


class ProcessBand(msgspec.Struct, frozen=True):
    """One process that held the run."""

    seq: int
    x: int
    width: int
    process: str
    host: str
    resumed: bool
    how: str
    """How it ended; empty while it holds the run."""
    told: str
    skipped: int
    saved: float
    begun: int

    @property
    def lost(self) -> bool:
        """Whether it ended without saying so."""
        return self.how in LOST


class Waterfall(msgspec.Struct, frozen=True):
    """The picture of some entries of a run."""

    bars: list[WaterfallBar]
    bands: list[ProcessBand]
    cuts: list[int]
    """Where an idle stretch is left out."""
    begun: int
    ended: int


def draw_waterfall(entries: Sequence[r.JournalEntry], status: str, now: int) -> Waterfall:
    """Return the picture. `status` is empty while a process holds the run."""
    builder = TimelineBuilder(lambda entry: getattr(entry.record, "text", ""))
    for entry in entries:
        builder.add(entry)
    picture = builder.picture(status, now, items=False)
    rows = [row for row in picture.rows if row.what != MADE_UP or row.notes != [""]]
    times = [at for row in rows for at in (row.begun, row.ended)]
    times += [at for opening in picture.openings for at in (opening.begun, opening.ended)]
    begun, ended = min(times, default=now), max(times, default=now)
    busy = [(row.begun, row.ended) for row in rows if row.phase == WORK and row.what not in WRITES]
    busy += [(one.begun, one.begun) for one in picture.openings]
    axis = TimeAxis(busy, begun, ended, WIDTH)
    bands = [_band(axis, opening) for opening in picture.openings]
    bars = [_bar(axis, row, picture) for row in rows]
    return Waterfall(bars, bands, axis.cuts, begun, ended)


def _band(axis: TimeAxis, opening: SectionOpening) -> ProcessBand:
    x, end = axis.column(opening.begun), axis.column(opening.ended)
    return ProcessBand(
        opening.seq,
        x,
        max(BAR_MIN, end - x),
        opening.process,
        opening.host,
        opening.resumed,
        opening.how,
        opening.told,
        opening.skipped,
        _cost(opening.saved),
        opening.begun,
    )


def _bar(axis: TimeAxis, row: TimelineRow, picture: RunTimeline) -> WaterfallBar:
    x, end = axis.column(row.begun), axis.column(row.ended)
    done = row.status == "done" and row.what in ("step", "effect", "each")
    replays = [axis.column(one.begun) for one in picture.openings if done and one.skipped and one.begun >= row.ended]
    return WaterfallBar(
        row.seq,
        row.what,
        row.name,
        row.status,
        row.phase,
        min(x, WIDTH - BAR_MIN),
        max(BAR_MIN, end - x),
        row.took_ms or max(0, row.ended - row.begun),
        row.tries,
        row.count,
        _cost(row.usage),
        [min(at, WIDTH - REPLAY_WIDTH) for at in replays[:20]],
        "; ".join(filter(None, row.notes)),
    )


def _cost(usage: Sequence[Any]) -> float:
    return float(sum(one.cost for one in usage) / NANOS)
