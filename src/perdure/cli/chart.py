"""`perdure timeline RUN`: draws a run over time, from its journal entries alone."""

from __future__ import annotations

import json
import shlex
import sys
import textwrap
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from perdure import records as r
from perdure.cli.output import (
    STYLES,
    CommandOutput,
    clean,
    format_age,
    format_count,
    format_time,
    format_value,
    to_json_value,
)
from perdure.cli.store_option import (
    add_common_options,
    agent_option,
    find_run,
    open_existing_store,
    repeat_options,
    run_argument,
)
from perdure.cli.timeline import describe
from perdure.journal.leases import lease_of
from perdure.journal.trees.tolerant_read import tolerant
from perdure.run.listing import RunSummary, children_of, find_runs, get_run
from perdure.run.prices import NANOS
from perdure.run.timeline import (
    DOUBT,
    WAIT,
    WORK,
    RunTimeline,
    SectionOpening,
    TimeAxis,
    TimelineBuilder,
    TimelineRow,
    merge_spans,
)
from perdure.run.usage import format_dollars, format_duration, usage_lines

if TYPE_CHECKING:
    from perdure.store.base import Store

ROWS_SHOWN, CHILDREN_MAX = 40, 100
WIDTH_MIN, WIDTH_MAX = 40, 1000
FRAME_SECONDS, FRAME_LINES = 0.1, 8
"""The refresh interval of a live picture, and its number of lines without rows."""
ENDED = ("finished", "failed", "interrupted", "paused", "cancelled")
"""Following a run ends at these. A crashed run may be resumed."""
_BARS = {WORK: ("━", ""), WAIT: ("┄", "yellow"), DOUBT: ("░", "bold yellow")}
_SIGNS = {"finished": "✓", "failed": "✗", "killed": "✗", "forked": "⑂"}
_STYLES = STYLES | {"given up": "red", "killed": "bold red", "in doubt": "bold yellow", "child": "blue"}
_ASCII = str.maketrans("━┄░╸✗┊…▶↻✓‖⑂", "=-?:x|~>>*!Y")

StyledLine = list[tuple[str, str]]
"""Texts with their styles."""


def lines_of(
    picture: RunTimeline, rows: Sequence[TimelineRow], width: int, unpack: Callable[[bytes], Any]
) -> list[StyledLine]:
    """Draw rows as bars over time, with the start and end of each process."""
    name = max(8, min(max((len(_label(row)) for row in rows), default=8), width // 4))
    bar = max(5, (width - name - 4) // 2)
    begun = picture.begun if len(rows) == len(picture.rows) else min(row.begun for row in rows)
    busy = [(row.begun, row.ended) for row in rows if row.phase == WORK]
    axis = TimeAxis([*busy, *((found.begun, found.begun) for found in picture.openings)], begun, picture.ended, bar)
    scale = f"{_clock(begun)}{'+' + format_duration((picture.ended - begun) / 1000):>{max(bar - 8, 0)}}"
    lines: list[StyledLine] = [[(" " * (name + 3) + scale, "dim")]]
    before: SectionOpening | None = None
    shown_rows: list[TimelineRow | SectionOpening] = [
        *rows,
        *(found for found in picture.openings if found.ended >= begun),
    ]
    for found in sorted(shown_rows, key=lambda found: (found.begun, isinstance(found, TimelineRow), found.seq)):
        if isinstance(found, TimelineRow):
            style = _STYLES.get(found.status, "")
            about = [text for text in (found.status if found.status != "done" else "", _details(found, unpack)) if text]
            lines.append(
                [
                    (f"  {_truncate(_label(found), name):{name}} ", ""),
                    *_bar(found, axis, bar),
                    (f" {': '.join(about)}", style),
                ]
            )
        else:
            lines += [_describe_end(before, found)] if before is not None else []
            lines.append(_describe_start(before, found))
            before = found
    return [*lines, *([_describe_end(before)] if before is not None and before.how else [])]


def _bar(row: TimelineRow, axis: TimeAxis, width: int) -> StyledLine:
    cells = [(" ", "")] * width
    for column in axis.cuts:
        cells[column] = ("┊", "dim")
    first, last = axis.column(row.begun), axis.column(row.ended)
    glyph, style = _BARS[row.phase]
    if row.phase == WORK and row.what not in ("step", "effect", "each", "child"):
        glyph = "╸"
    cells[first : last + 1] = [(glyph, style or _STYLES.get(row.what, "green"))] * (last + 1 - first)
    if row.status in ("failed", "given up", "in doubt"):
        cells[axis.column(row.ended)] = ("?" if row.status == "in doubt" else "✗", _STYLES[row.status])
    return cells


def _describe_start(before: SectionOpening | None, row: SectionOpening) -> StyledLine:
    sign, how = ("▶", "started") if before is None else ("↻", "resumed" if before.host == row.host else "taken over")
    past = f", skipped {format_count(row.skipped, 'finished step')}" if row.skipped else ""
    saved = f", {_money(row.saved)} not paid again" if _money(row.saved) else ""
    return [(f"{sign} {how} by {clean(row.process)} on {clean(row.host)}", "bold cyan"), (past + saved, "dim")]


def _describe_end(row: SectionOpening, then: SectionOpening | None = None) -> StyledLine:
    told = f": {clean(row.told)}" if row.told else ""
    down = "" if then is None else f", down {format_duration(max(0, then.begun - row.ended) / 1000)}"
    text = f"{_SIGNS.get(row.how, '‖')} {row.how}{told}"
    return [(text, _STYLES.get(row.how, "yellow")), (f" at {_clock(row.ended)}{down}", "dim")]


def _label(row: TimelineRow) -> str:
    name = clean(row.name)
    if row.what in ("step", "note", "effect"):
        return f"{name} !" if row.what == "effect" else name
    count = f": {format_count(row.count, 'item' if row.what == 'each' else 'write')}" if row.count else ""
    return f"{row.what} {name}".strip() + count


def _details(row: TimelineRow, unpack: Callable[[bytes], Any]) -> str:
    took = format_duration(row.took_ms / 1000) if row.took_ms else ""
    tries = f"{row.tries} tries" if row.tries > 1 else ""
    result = f"-> {format_value(unpack(row.result), 80)}" if row.result else ""
    writes = format_count(row.count, "write") if row.count and row.what in ("step", "effect") else ""
    return ", ".join(filter(None, [took, _money(row.usage), tries, result, *map(clean, row.notes), writes]))


def _summarize_usage(usage: Sequence[r.ModelUsage]) -> dict[str, Any]:
    calls, unpriced = sum(row.calls for row in usage), sum(row.unpriced for row in usage)
    return {"calls": calls, "cost_usd": sum(row.cost for row in usage) / NANOS, "unpriced_calls": unpriced}


def _money(usage: Sequence[r.ModelUsage]) -> str:
    """Return the cost; a question mark stands for calls without a known price."""
    spent = _summarize_usage(usage)
    known = format_dollars(spent["cost_usd"]) if spent["calls"] > spent["unpriced_calls"] else ""
    return known + ("?" if spent["unpriced_calls"] else "")


def _clock(at: int) -> str:
    return datetime.fromtimestamp(at / 1000).astimezone().strftime("%H:%M:%S")


def _truncate(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


# -- the command ------------------------------------------------------------------------------------------------------


@click.command()
@run_argument
@agent_option
@click.option(
    "--last", type=click.IntRange(min=0), help=f"Rows to show; 0: all. Default: {ROWS_SHOWN}, with --json all."
)
@click.option("--items", is_flag=True, help="Show a row for each call, instead of one for each loop.")
@click.option("--follow", is_flag=True, help="Draw the run as it goes, until it ends.")
@click.option("--width", type=click.IntRange(WIDTH_MIN, WIDTH_MAX), help="Draw this wide, also into a pipe.")
@add_common_options
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
    """Draw a run over time: steps, restarts, waits, effects in doubt, cost.

    Long idle stretches are cut out. Effects are marked with (!).
    """
    out = CommandOutput(as_json)
    with open_existing_store(url) as store:
        scene = LiveRun(store, find_run(store, run, agent), items)
        if follow and not (out.rich or width):
            return _print_entries(out, scene)
        if follow:
            return _watch(out, scene, width, last, repeat_options(url, agent))
        if as_json:
            out.json(_as_json(scene, last or 0))
        else:
            rows = ROWS_SHOWN if last is None else last
            for line in _frame(out, scene, width or out.width, rows, repeat_options(url, agent)):
                out.pieces(line)
    return 0


class LiveRun:
    """The current state of a run, refreshed by `read_new`."""

    def __init__(self, store: Store, summary: RunSummary, items: bool) -> None:
        self._store, self._items = store, items
        info = get_run(store, summary.agent, summary.id, unpack=bytes)
        self.summary, self.events, self.unpack = info.summary, list(info.events), tolerant(store)
        self.now = store.clock.wall_ms()

    def read_new(self) -> list[r.JournalEntry]:
        """Return the entries since the last look."""
        self._store.clock.sleep(FRAME_SECONDS if self._store.one_host else 3 * FRAME_SECONDS)
        rows = self._store.read("journal_of", (self.summary.stream, self.events[-1].seq))
        new = [r.JournalEntry(seq, at, r.decode(kind, body)) for seq, kind, at, body, _, _ in rows if body is not None]
        self.events += new
        [self.summary] = [row for row in find_runs(self._store, self.summary.id) if row.agent == self.summary.agent]
        self.now = self._store.clock.wall_ms()
        return new

    def picture(self) -> RunTimeline:
        """Return the rows, including those of children."""
        builder = TimelineBuilder(lambda event: describe([event], self.unpack)[0])
        for event in self.events:
            builder.add(event)
        picture = builder.picture(self._describe_ending(), self.now, self._items)
        children = children_of(self._store, self.summary.stream)[-CHILDREN_MAX:]
        picture.rows = sorted([*picture.rows, *map(self._child, children)], key=lambda row: (row.begun, row.seq))
        return picture

    def _describe_ending(self) -> str:
        """Return how the run was left last; empty while a process holds it."""
        if self.summary.holder or self.summary.status != r.RunStatus.WAITING:
            return "" if self.summary.holder else self.summary.status.value
        [row] = self._store.read("read_lease", (self.summary.stream, self._store.clock.boot_ms()))
        return "waited" if lease_of(row, self._store.one_host).describe_end() == "released" else "killed"

    def _child(self, child: RunSummary) -> TimelineRow:
        usage = [line.usage for line in usage_lines(self._store, child.agent, child.id)]
        ended = self.now if child.status in (r.RunStatus.RUNNING, r.RunStatus.WAITING) else child.changed_at
        status = "done" if child.status == r.RunStatus.FINISHED else child.status.value
        notes = [f"of {child.agent}"] if child.agent != self.summary.agent else []
        begun = child.started_at
        took = ended - begun
        return TimelineRow("child", child.id, 0, begun, ended, status=status, took_ms=took, usage=usage, notes=notes)


def _frame(out: CommandOutput, scene: LiveRun, width: int, last: int, options: str) -> list[StyledLine]:
    picture, run = scene.picture(), scene.summary
    rows = picture.rows[-last:] if last else picture.rows
    title = f"run {clean(run.id)} of agent {clean(run.agent)}: "
    lines: list[StyledLine] = [[(title, "bold"), (run.status.value, _STYLES.get(run.status.value, ""))]]
    lines += [[(part, "dim")] for part in textwrap.wrap(_totals(picture), width)]
    if left_off := len(picture.rows) - len(rows):
        lines.append([(f"{format_count(left_off, 'row')} before; --last 0 shows all", "dim")])
    lines += lines_of(picture, rows, width, scene.unpack)
    if run.status == r.RunStatus.RUNNING:
        lines.append([(f"at work, last entry {format_age(scene.events[-1].at, scene.now)}", "cyan")])
    if not run.status.over and any(row.status in ("in doubt", "waiting") for row in rows):
        lines.append([(clean(f"perdure show {shlex.quote(run.id)}{options}") + "  shows how to answer", "yellow")])
    elif run.status == r.RunStatus.CRASHED:
        lines.append([("start its program again: the run continues where it was", "yellow")])
    return [fit_line(line, width, out.unicode) for line in lines]


def fit_line(line: StyledLine, width: int, in_unicode: bool) -> StyledLine:
    """Shorten a line to the screen, in characters that it can show."""
    found: StyledLine = []
    for text, style in line:
        room = width - sum(len(part) for part, _ in found)
        part = _truncate(text, room) if room else ""
        found.append((part if in_unicode else part.translate(_ASCII), style))
    return found


def _totals(picture: RunTimeline) -> str:
    """Describe the run in one line."""
    work, waits = (
        sum(
            b - a
            for a, b in merge_spans((row.ended - row.took_ms, row.ended) for row in picture.rows if row.phase == phase)
        )
        for phase in (WORK, WAIT)
    )
    times = (("at work", work), ("waited", waits), ("down", picture.down_ms))
    children = sum(row.what == "child" for row in picture.rows)
    return ", ".join([
        format_duration(max(0, picture.ended - picture.begun) / 1000),
        *(f"{what} {format_duration(ms / 1000)}" for what, ms in times if ms),
        *(format_count(count, what) for what, count in picture.counts.items()),
        *([format_count(children, "child", "children")] if children else []),
        *([format_count(len(picture.openings), "process", "processes")] if len(picture.openings) > 1 else []),
        *filter(None, [_money(picture.usage)]),
    ])  # fmt: skip


def _watch(out: CommandOutput, scene: LiveRun, width: int | None, last: int | None, options: str) -> int:
    """Redraw the run until it ends."""
    rows = last if last else max(3, out.height - FRAME_LINES)
    with out.redraw_live() as draw:
        while True:
            draw(_frame(out, scene, width or out.width, rows, options))
            if scene.summary.status in ENDED:
                return 0
            scene.read_new()


def _print_entries(out: CommandOutput, scene: LiveRun) -> int:
    """Print each entry in words: existing ones, then new ones as they arrive."""
    new = scene.events
    while True:
        for event, text in zip(new, describe(new, scene.unpack), strict=True):
            kind = event.kind
            if out.as_json:
                print(
                    json.dumps(
                        to_json_value({"seq": event.seq, "at": format_time(event.at), "kind": kind, "text": text})
                    )
                )
            else:
                print(f"{format_time(event.at)}  {event.seq:>5}  {text}")
        sys.stdout.flush()
        if scene.summary.status in ENDED:
            return 0
        new = scene.read_new()


def _as_json(scene: LiveRun, last: int) -> dict[str, Any]:
    picture, run = scene.picture(), scene.summary
    rows = picture.rows[-last:] if last else picture.rows
    whole = {"id": run.id, "agent": run.agent, "status": run.status.value, "down_ms": picture.down_ms}
    processes = [
        {
            "process": opening.process,
            "host": opening.host,
            "resumed": opening.resumed,
            "how": opening.how,
            "told": opening.told,
            **_times(opening),
        }
        | {"skipped_steps": opening.skipped, "saved_usd": _summarize_usage(opening.saved)["cost_usd"]}
        for opening in picture.openings
    ]
    found = {"processes": processes, "rows": [_row_as_json(row, scene) for row in rows]}
    return whole | _times(picture) | _summarize_usage(picture.usage) | found


def _times(row: RunTimeline | SectionOpening | TimelineRow) -> dict[str, str]:
    return {"began_at": format_time(row.begun), "ended_at": format_time(row.ended)}


def _row_as_json(row: TimelineRow, scene: LiveRun) -> dict[str, Any]:
    fields = {name: getattr(row, name) for name in ("what", "name", "seq", "status", "took_ms", "tries", "count")}
    part = {"phase": row.phase, "from": format_time(row.begun), "until": format_time(row.ended)}
    result = scene.unpack(row.result) if row.result else None
    return fields | _times(row) | _summarize_usage(row.usage) | {"result": result, "notes": row.notes, "parts": [part]}
