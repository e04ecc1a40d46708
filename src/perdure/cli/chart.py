"""`perdure timeline RUN`: a picture of a run, over time."""

from __future__ import annotations

import json
import shlex
import sys
import textwrap
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import click
import msgspec

from .. import records as r
from ..prices import NANOS
from ..runs import RunSummary, children_of, find_runs, get_run
from ..trees.tolerant import tolerant
from ..usage import in_time, usage_lines, usage_of
from . import drawing
from .axis import brief, merged
from .drawing import ASCII, UNICODE, Drawing, Line
from .output import Output, ago, clean, counted, plain, when
from .picture import picture_of
from .spans import WAIT, WORK, Opening, Picture, Row, Spending
from .stores import agent_option, common, existing_store, one_run, run_argument, said_again
from .timeline import in_words

if TYPE_CHECKING:
    from ..store.base import Store

ROWS_SHOWN = 40
CHILDREN_MAX = 100
WIDTH_MIN, WIDTH_MAX = 40, 1000
FRAME_SECONDS = 0.1
FRAME_LINES = 8
"""Lines of a live picture beside its rows."""
GOING_ON = ("running", "waiting", "crashed", "queued", "cancelling")
"""Whoever follows a run stays while it is one of these; a crashed one may be resumed."""


@click.command()
@run_argument
@agent_option
@click.option(
    "--last", type=click.IntRange(min=0), help=f"Rows to show; 0: all. Default: {ROWS_SHOWN}, with --json all."
)
@click.option(
    "--items", is_flag=True, help="A row for each call: else a loop is one, and so is a call made again and again."
)
@click.option("--follow", is_flag=True, help="Go on until the run ends, and draw it as it goes.")
@click.option("--width", type=click.IntRange(WIDTH_MIN, WIDTH_MAX), help="Draw that wide, also into a pipe.")
@common
def timeline(
    run: str,
    agent: str | None,
    last: int | None,
    items: bool,
    follow: bool,
    width: int | None,
    url: str | None,
    as_json: bool,
) -> int:
    """Draw a run over time: steps, restarts, waits, what is in doubt, what it cost.

    Time in which nobody was at work is cut out where it is long, and labelled. The name of an effect has a mark (!).
    Piped, it is a table with a line for each row.
    """
    out = Output(as_json)
    with existing_store(url) as store:
        scene = Scene(store, one_run(store, run, agent), items)
        if follow and not (out.rich or width):
            return _tell(out, scene)
        if follow:
            return _watch(out, scene, width, last, said_again(url, agent))
        if as_json:
            out.json(_as_json(scene, last or 0))
        elif out.rich or width:
            shown = ROWS_SHOWN if last is None else last
            for line in _frame(out, scene, width or out.width, shown, said_again(url, agent)):
                out.pieces(line)
        else:
            _print_table(out, scene, ROWS_SHOWN if last is None else last)
    return 0


class Scene:
    """A run as it is now; `look` brings it up to date."""

    def __init__(self, store: Store, summary: RunSummary, items: bool) -> None:
        self._store, self._items = store, items
        info = get_run(store, summary.agent, summary.id, unpack=bytes)
        self.summary, self.events, self.unpack = info.summary, list(info.events), tolerant(store)
        self.now = store.clock.wall_ms()

    def look(self) -> list[r.Event]:
        """What has come since the last look."""
        rows = self._store.read("events_of", (self.summary.stream, self.events[-1].seq))
        new = [r.Event(seq, at, r.decode(kind, body)) for seq, kind, at, body, _, _ in rows if body is not None]
        self.events += new
        [self.summary] = [it for it in find_runs(self._store, self.summary.id) if it.agent == self.summary.agent]
        self.now = self._store.clock.wall_ms()
        return new

    def wait(self) -> None:
        """Until it is worth to look again."""
        self._store.clock.sleep(FRAME_SECONDS if self._store.one_host else 3 * FRAME_SECONDS)

    def picture(self) -> Picture:
        """The rows, with those of children among them."""
        standing = "" if self.summary.holder else self.summary.status.value
        picture = picture_of(self.events, standing, self.now, self._items, self._in_words)
        children = children_of(self._store, self.summary.stream)[-CHILDREN_MAX:]
        rows = sorted([*picture.rows, *map(self._child, children)], key=lambda row: (row.begun, row.seq))
        return msgspec.structs.replace(picture, rows=rows)

    def _in_words(self, event: r.Event) -> str:
        return in_words([event], self.unpack)[0]

    def _child(self, it: RunSummary) -> Row:
        spent = usage_of(usage_lines(self._store, it.agent, it.id))
        cost = Spending(spent.calls, round((spent.cost_usd or 0) * NANOS), spent.unpriced_calls)
        ended = self.now if it.status in (r.Status.RUNNING, r.Status.WAITING) else it.changed_at
        status = "done" if it.status == r.Status.FINISHED else it.status.value
        whose = [f"of {it.agent}"] if it.agent != self.summary.agent else []
        return Row("child", it.id, 0, it.started_at, status, [(WORK, it.started_at, ended)], cost, notes=whose)


# -- drawing ----------------------------------------------------------------------------------------------------------


def _frame(out: Output, scene: Scene, width: int, last: int, options: str) -> list[Line]:
    picture = scene.picture()
    rows = picture.rows[-last:] if last else picture.rows
    glyphs = UNICODE if out.unicode else ASCII
    run = scene.summary
    lines: list[Line] = [
        [
            (f"run {clean(run.id)} of agent {clean(run.agent)}: ", "bold"),
            (run.status.value, drawing.style_of(run.status.value)),
        ],
        *([(part, "dim")] for part in textwrap.wrap(_totals(picture), width)),
    ]
    if picture.folded:
        lines.append([(f"older entries were folded: archive {clean(picture.folded)}", "dim")])
    if left_off := len(picture.rows) - len(rows):
        lines.append([(f"{counted(left_off, 'row')} before; --last 0 shows all", "dim")])
    lines += Drawing(picture, rows, width, glyphs, scene.unpack).lines()
    if run.status == r.Status.RUNNING:
        lines.append([(f"at work, last entry {ago(scene.events[-1].at, scene.now)}", "cyan")])
    lines += _what_to_do(scene, picture, options)
    return [drawing.cut_to(line, width, glyphs.more) for line in lines]


def _totals(picture: Picture) -> str:
    """The run in one sentence."""
    whole = max(0, picture.ended - picture.begun)
    parts = [f"{in_time(whole / 1000)}"]
    for name, phase in (("at work", WORK), ("waited", WAIT)):
        spans = merged((a, b) for row in picture.rows for it, a, b in row.parts if it == phase)
        if (total := sum(b - a for a, b in spans)) and whole:
            parts.append(f"{name} {brief(total)}")
    if down := _down_ms(picture.openings):
        parts.append(f"down {brief(down)}")
    children = sum(row.what == "child" for row in picture.rows)
    for what, count in (*picture.counts.items(), *([("child", children)] if children else [])):
        parts.append(counted(count, what, "children" if what == "child" else ""))
    if len(picture.openings) > 1:
        parts.append(counted(len(picture.openings), "process", "processes"))
    if cost := drawing.money(picture.spent):
        parts.append(cost)
    return ", ".join(parts)


def _down_ms(openings: Sequence[Opening]) -> int:
    return sum(max(0, after.begun - before.ended) for before, after in pairwise(openings))


def _what_to_do(scene: Scene, picture: Picture, options: str) -> list[Line]:
    status = scene.summary.status
    open_rows = [row for row in picture.rows if row.status in ("in doubt", "waiting")]
    if status.over or not (open_rows or status == r.Status.CRASHED):
        return []
    show = clean(f"perdure show {shlex.quote(scene.summary.id)}{options}")
    if open_rows:
        return [[(f"{show}  says how to answer", "yellow")]]
    return [[("start its program again: it goes on where it was", "yellow")]]


def _watch(out: Output, scene: Scene, width: int | None, last: int | None, options: str) -> int:
    """Draw it again whenever something has come; bars that are open grow."""
    rows = last if last else max(3, out.height - FRAME_LINES)
    with out.live() as draw:
        while True:
            draw(_frame(out, scene, width or out.width, rows, options))
            if scene.summary.status not in GOING_ON:
                return 0
            scene.wait()
            scene.look()


def _tell(out: Output, scene: Scene) -> int:
    """Into a pipe: each entry in words, those that are there and those that come."""
    new = scene.events
    while True:
        for event, text in zip(new, in_words(new, scene.unpack), strict=True):
            kind = type(event.record).__name__
            if out.as_json:
                print(json.dumps(plain({"seq": event.seq, "at": when(event.at), "kind": kind, "text": text})))
            else:
                print(f"{when(event.at)}  {event.seq:>5}  {text}")
        sys.stdout.flush()
        if scene.summary.status not in GOING_ON:
            return 0
        scene.wait()
        new = scene.look()


def _print_table(out: Output, scene: Scene, last: int) -> None:
    picture = scene.picture()
    rows = picture.rows[-last:] if last else picture.rows
    first = rows[0].begun if rows else 0
    cells: list[tuple[int, tuple[str, ...]]] = []
    for it in (it for it in picture.openings if it.ended >= first):
        what = "resumed" if it.resumed else "started"
        name = clean(f"{it.process} on {it.host}")
        cells.append(
            (it.begun, (when(it.begun), brief(it.ended - it.begun), what, name, it.how or "open", "", clean(it.told)))
        )
    for row in rows:
        took = brief(row.took_ms) if row.took_ms else ""
        name = drawing.label(row).removeprefix(row.what).strip(" :!")
        told = drawing.note(row, scene.unpack)
        cells.append((row.begun, (when(row.begun), took, row.what, name, row.status, drawing.money(row.spent), told)))
    cells.sort(key=lambda pair: pair[0])
    out.table(("BEGAN", "TOOK", "WHAT", "NAME", "STATUS", "COST", "NOTE"), [row for _, row in cells])
    out.line(_totals(picture))


# -- JSON -------------------------------------------------------------------------------------------------------------


def _as_json(scene: Scene, last: int) -> dict[str, Any]:
    picture, run = scene.picture(), scene.summary
    return {
        "id": run.id,
        "agent": run.agent,
        "status": run.status.value,
        "began_at": when(picture.begun),
        "ended_at": when(picture.ended),
        "down_ms": _down_ms(picture.openings),
        **_spending(picture.spent),
        "processes": [_opening_as_json(it) for it in picture.openings],
        "rows": [_row_as_json(row, scene) for row in (picture.rows[-last:] if last else picture.rows)],
    }


def _spending(it: Spending) -> dict[str, Any]:
    return {"calls": it.calls, "cost_usd": it.cost / NANOS, "unpriced_calls": it.unpriced}


def _opening_as_json(it: Opening) -> dict[str, Any]:
    return {
        "process": it.process,
        "host": it.host,
        "resumed": it.resumed,
        "began_at": when(it.begun),
        "ended_at": when(it.ended),
        "how": it.how,
        "told": it.told,
        "skipped_steps": it.skipped,
        "saved_usd": it.saved.cost / NANOS,
    }


def _row_as_json(row: Row, scene: Scene) -> dict[str, Any]:
    return {
        "what": row.what,
        "name": row.name,
        "seq": row.seq,
        "status": row.status,
        "began_at": when(row.begun),
        "ended_at": when(row.ended),
        "took_ms": row.took_ms,
        "times": row.times,
        "tries": row.tries,
        "count": row.count,
        **_spending(row.spent),
        "result": scene.unpack(row.result) if row.result else None,
        "notes": row.notes,
        "parts": [{"phase": phase, "from": when(begun), "until": when(ended)} for phase, begun, ended in row.parts],
    }
