"""A picture of a run as lines of text: a bar over time for each row, and the processes between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from ..prices import NANOS
from ..usage import in_dollars
from .axis import Axis, brief
from .output import clean, counted, shown
from .spans import DOUBT, POINT, WAIT, WORK, Opening, Picture, Row, Spending

Piece = tuple[str, str]
"""Text and its style."""
Line = list[Piece]

_STYLES = {
    "done": "green",
    "failed": "red",
    "given up": "red",
    "in doubt": "bold yellow",
    "running": "cyan",
    "waiting": "yellow",
    "timed out": "yellow",
    "refused": "yellow",
    "finished": "green",
    "interrupted": "yellow",
    "paused": "yellow",
    "cancelled": "red",
    "killed": "bold red",
    "crashed": "bold red",
    "checkpoint": "magenta",
    "note": "magenta",
    "child": "blue",
}


class Glyphs(msgspec.Struct, frozen=True):
    """What bars are made of."""

    phases: dict[str, str]
    point: str
    bad: str
    unknown: str
    cut: str
    more: str
    signs: dict[str, str]


UNICODE = Glyphs(
    {WORK: "━", WAIT: "┄", DOUBT: "░"}, "╸", "✗", "?", "┊", "…",
    {"start": "▶", "resume": "↻", "finished": "✓", "failed": "✗", "interrupted": "‖", "killed": "✗",
     "forked": "⑂", "checkpoint": "◆"},
)  # fmt: skip
ASCII = Glyphs(
    {WORK: "=", WAIT: "-", DOUBT: "?"}, ":", "x", "?", "|", "~",
    {"start": ">", "resume": ">", "finished": "*", "failed": "x", "interrupted": "!", "killed": "x",
     "forked": "Y", "checkpoint": "#"},
)  # fmt: skip
"""For terminals that know nothing else."""


class Columns(msgspec.Struct, frozen=True):
    """How wide the parts of a line are."""

    name: int
    bar: int
    took: int
    cost: int
    note: int


def laid_out(rows: Sequence[Row], width: int, costs: bool) -> Columns:
    """The columns of a picture, so that nothing is wider than the screen."""
    longest = max((len(label(row)) for row in rows), default=10)
    name = max(8, min(longest, width // 4))
    took, cost = (7, 8 if costs else 0) if width >= 60 else (0, 0)
    left = width - name - took - cost - 4 - (1 if costs else 0)
    note = min(left // 2, 60) if left >= 30 else 0
    return Columns(name, max(left - note, 5), took, cost, note)


def style_of(status: str) -> str:
    """The colour of a status."""
    return _STYLES.get(status, "")


def label(row: Row) -> str:
    """What a row is called."""
    name = clean(row.name) + (f" x{row.times}" if row.times > 1 else "")
    if row.what in ("step", "note"):
        return name
    if row.what == "effect":
        return f"{name} !"
    if row.what == "each":
        return f"each{f' {name}' if name else ''}: {counted(row.count, 'item')}"
    return f"{row.what}: {counted(row.count, 'write')}" if row.count and not name else f"{row.what} {name}".strip()


def money(spent: Spending) -> str:
    """What it cost; a question mark stands for calls whose price nobody knows."""
    if not spent.calls:
        return ""
    known = in_dollars(spent.cost / NANOS) if spent.calls > spent.unpriced else ""
    return known + ("?" if spent.unpriced else "")


class Drawing:
    """Draws the rows of one picture."""

    def __init__(
        self, picture: Picture, rows: Sequence[Row], width: int, glyphs: Glyphs, unpack: Callable[[bytes], Any]
    ) -> None:
        self._picture, self._rows, self._glyphs, self._unpack = picture, rows, glyphs, unpack
        self._columns = laid_out(rows, width, any(row.spent.calls for row in rows))
        whole = len(rows) == len(picture.rows)
        begun, ended = picture.begun if whole else min(row.begun for row in rows), picture.ended
        busy = [(a, b) for row in rows for phase, a, b in row.parts if phase in (WORK, POINT)]
        busy += [(it.begun, it.begun) for it in picture.openings if begun <= it.begun <= ended]
        self._axis = Axis(busy, begun, ended, self._columns.bar)

    def lines(self) -> list[Line]:
        """The whole picture; processes stand where they came and went."""
        seen: list[Row | Opening] = [*self._rows, *self._shown_openings()]
        found = [self._scale()]
        for it in sorted(seen, key=lambda it: (it.begun, isinstance(it, Row), it.seq)):
            if isinstance(it, Row):
                found.append(self._row(it))
            else:
                found += self._opening(it)
        return [*found, *self._ending()]

    def _shown_openings(self) -> list[Opening]:
        """Those that overlap with the rows: the older ones are left off with theirs."""
        first = self._rows[0].begun if self._rows else 0
        return [it for it in self._picture.openings if it.ended >= first]

    def _scale(self) -> Line:
        cells = [" "] * self._columns.bar
        _put(cells, 0, _clock(self._axis.begun))
        for it in self._axis.breaks:
            if it.last - it.first + 1 >= len(it.label) + 2:
                _put(cells, it.first + 1, it.label)
        total = f"+{brief(self._axis.ended - self._axis.begun)}"
        _put(cells, self._columns.bar - len(total), total)
        return [(" " * (self._columns.name + 2), ""), ("".join(cells).rstrip(), "dim")]

    def _row(self, row: Row) -> Line:
        it, style = self._columns, _STYLES.get(row.what if row.what in ("child", "checkpoint", "note") else "", "")
        line: Line = [("  " + _fit(label(row), it.name, self._glyphs.more), style), (" ", "")]
        line += self._bar(row)
        if it.took:
            line.append((f" {brief(row.took_ms) if row.took_ms else '':>{it.took - 1}}", "dim"))
        if it.cost:
            line.append((f" {money(row.spent):>{it.cost}}", "yellow"))
        if it.note:
            line += self._note(row)
        return line

    def _note(self, row: Row) -> Line:
        text = note(row, self._unpack)
        shown_as = "" if row.status == "done" else row.status
        line: Line = [(" ", "")]
        if shown_as:
            line.append((_fit(shown_as, min(len(shown_as), self._columns.note - 1), ""), _STYLES.get(row.status, "")))
        left = self._columns.note - 1 - len(shown_as) - (2 if shown_as and text else 0)
        if text and left > 3:
            line.append(((": " if shown_as else "") + _fit(text, left, self._glyphs.more).rstrip(), "dim"))
        return line

    def _bar(self, row: Row) -> Line:
        cells: list[Piece] = [(" ", "")] * self._columns.bar
        for it in self._axis.breaks:
            cells[min(it.last, len(cells) - 1)] = (self._glyphs.cut, "dim")
            if not it.first or cells[it.first - 1][0] != self._glyphs.cut:  # neighbours share a line
                cells[it.first] = (self._glyphs.cut, "dim")
        failures = row.what in ("step", "effect")  # the points of others only stand for items and writes
        for phase, begun, ended in sorted(row.parts, key=lambda part: (part[0] == POINT) == failures):
            self._fill(cells, row, phase, self._axis.column(begun), self._axis.column(ended))
        end = self._axis.column(row.ended)
        if row.status in ("failed", "given up"):
            cells[end] = (self._glyphs.bad, "red")
        elif row.status == "in doubt":
            cells[end] = (self._glyphs.unknown, "bold yellow")
        return _joined(cells)

    def _fill(self, cells: list[Piece], row: Row, phase: str, first: int, last: int) -> None:
        if phase == POINT:
            failed = row.what in ("step", "effect")
            sign = self._glyphs.signs.get(row.what, self._glyphs.bad if failed else self._glyphs.point)
            cells[first] = (sign, "red" if failed else _STYLES.get(row.what, _STYLES["done"]))
            return
        style = {WAIT: "yellow", DOUBT: "bold yellow"}.get(phase, _STYLES.get(row.status, "green"))
        style = "blue" if row.what == "child" and phase == WORK else style
        cells[first : last + 1] = [(self._glyphs.phases[phase], style)] * (last + 1 - first)

    def _opening(self, it: Opening) -> list[Line]:
        """A process comes; before it, how the one before went."""
        before = self._picture.openings[self._picture.openings.index(it) - 1] if it.resumed else None
        lines: list[Line] = []
        if before is not None and before in self._shown_openings():
            lines.append(self._gone(before, f", down {brief(it.begun - before.ended)}"))
        sign = self._glyphs.signs["resume" if it.resumed else "start"]
        how = "started" if before is None else "resumed" if before.host == it.host else "taken over"
        text = f"{sign} {how} by {clean(it.process)} on {clean(it.host)}"
        return [*lines, [(text, "bold cyan"), (_past(it), "dim")]]

    def _gone(self, it: Opening, down: str = "") -> Line:
        told = f": {clean(it.told)}" if it.told else ""
        sign = self._glyphs.signs.get(it.how, self._glyphs.signs["interrupted"])
        return [
            (f"{sign} {it.how}{told}", _STYLES.get(it.how, "yellow")),
            (f" at {_clock(it.ended)}{down}", "dim"),
        ]

    def _ending(self) -> list[Line]:
        last = self._picture.openings[-1] if self._picture.openings else None
        return [self._gone(last)] if last is not None and last.how else []


def note(row: Row, unpack: Callable[[bytes], Any]) -> str:
    """What else there is to say about a row, in one line."""
    parts = [clean(part) for part in row.notes]
    if row.result:
        parts.insert(0, f"-> {shown(unpack(row.result), 80)}")
    if row.tries > 1:
        parts.insert(0, f"{row.tries} tries")
    if row.count and row.what in ("step", "effect"):
        parts.append(counted(row.count, "write"))
    return ", ".join(parts)


def _past(it: Opening) -> str:
    if not it.skipped:
        return ""
    saved = f", {money(it.saved)} not paid again" if it.saved.cost else ""
    return f", went past {counted(it.skipped, 'step')}{saved}"


def _clock(at: int) -> str:
    return datetime.fromtimestamp(at / 1000).astimezone().strftime("%H:%M:%S")


def _put(cells: list[str], first: int, text: str) -> None:
    """Write into a line where it is still empty, with a blank on each side."""
    if first < 0 or any(cell != " " for cell in cells[max(0, first - 1) : first + len(text) + 1]):
        return
    cells[first : first + len(text)] = text


def _fit(text: str, width: int, more: str) -> str:
    return text.ljust(width) if len(text) <= width else text[: max(width - len(more), 0)] + more


def cut_to(line: Line, width: int, more: str) -> Line:
    """A line that fits the screen."""
    if sum(len(text) for text, _ in line) <= width:
        return line
    found: Line = []
    for text, style in line:
        left = width - sum(len(part) for part, _ in found)
        found.append((text if len(text) < left else _fit(text, left, more), style))
        if len(text) >= left:
            break
    return found


def _joined(cells: Sequence[Piece]) -> Line:
    """Neighbours of one style become one piece."""
    line: Line = []
    for text, style in cells:
        if line and line[-1][1] == style:
            line[-1] = line[-1][0] + text, style
        else:
            line.append((text, style))
    return line
