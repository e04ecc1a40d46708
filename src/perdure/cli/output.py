"""The output of commands: tables and text for people, JSON for programs.

A terminal gets rich layout; a pipe gets plain text without colours or boxes. Text from a store is escaped, so that it
can neither move the cursor nor act as markup.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO

from perdure.values import visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.tree import Tree

clean = visible.clean

VALUE_CHARACTERS_MAX = 200
"""The length of a value on a screen; JSON has all of it."""

WRAPPED_MIN = 20
"""The minimum width of a table's widest column."""

STYLES = {
    "finished": "green",
    "running": "cyan",
    "waiting": "yellow",
    "interrupted": "yellow",
    "crashed": "bold red",
    "failed": "red",
    "ok": "green",
    "note": "yellow",
    "problem": "bold red",
    "damage": "bold red",
    "unsigned": "yellow",
}
"""The styles of cells that are exactly one of these words."""


def format_value(value: Any, limit: int = VALUE_CHARACTERS_MAX) -> str:
    """Format a value in one line."""
    text = clean(repr(value))
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def format_lines(value: Any, width: int, limit: int = 4_000) -> list[str]:
    """Format a value in several lines; a long one is cut, with a note on how to see the rest."""
    from pprint import pformat

    from perdure.journal.trees.tolerant_read import Unreadable  # late: `perdure --help` prints no values

    text = (
        str(value)
        if isinstance(value, Unreadable)
        else pformat(value, width=max(width, 20), compact=True, sort_dicts=False)
    )
    lines = [clean(line) for line in text[:limit].split("\n")]
    return lines if len(text) <= limit else [*lines, f"… {len(text):,} characters in all; --json shows everything"]


def to_json_value(value: Any) -> Any:
    """Convert a value for JSON; objects that JSON lacks become their repr."""
    if value is None or type(value) in (bool, int, str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else repr(key): to_json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset | deque):
        return [to_json_value(item) for item in value]
    return str(value) if isinstance(value, str) else repr(value)


def format_time(at: int) -> str:
    """Format a time for programs: ISO 8601 in UTC."""
    return format_moment(datetime.fromtimestamp(at / 1000, UTC))


def format_moment(at: datetime) -> str:
    """Format a time that has a zone for programs: ISO 8601 in UTC."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def to_json_record(record: object) -> dict[str, Any]:
    """The fields of a record for JSON, its times as those of every command."""
    import msgspec  # late: `perdure --help` does without

    fields = msgspec.to_builtins(record, enc_hook=repr, builtin_types=(datetime,))
    return {name: format_moment(value) if isinstance(value, datetime) else value for name, value in fields.items()}


def format_age(at: int, now: int) -> str:
    """Format a time for people, relative to now."""
    seconds = max(0, now - at) / 1000
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit} ago"
    return f"{int(seconds)} s ago"


def size(count: int) -> str:
    """Format a number of bytes for people."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} bytes"


def format_count(count: int, one: str, many: str = "") -> str:
    """Format a count with its noun.

    >>> counted(1, "run"), counted(2, "run"), counted(0, "entry", "entries")
    ('1 run', '2 runs', '0 entries')
    """
    return f"{count} {one if count == 1 else many or one + 's'}"


def is_terminal(stream: TextIO) -> bool:
    """Whether a stream is a terminal that shows colours."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


class CommandOutput:
    """The output of a command."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self.rich = not as_json and is_terminal(sys.stdout)
        self.unicode = (sys.stdout.encoding or "").lower().startswith("utf")
        """Whether non-ASCII characters can be shown."""

    def json(self, value: Any) -> None:
        """Print the JSON value of a command, in ASCII, which is safe in any terminal."""
        print(json.dumps(to_json_value(value), indent=2))

    def flush(self) -> None:
        """Show what was printed now, because the command goes on."""
        sys.stdout.flush()

    def line(self, text: str = "", style: str = "") -> None:
        """Print one line of clean text."""
        if self.rich:
            from rich.text import Text

            self._console.print(Text(text, style=style), soft_wrap=True)
        else:
            print(text)

    @property
    def width(self) -> int:
        """The number of columns of the terminal; a fixed width for a pipe."""
        return self._console.width if self.rich else 100

    @property
    def height(self) -> int:
        """The number of lines of the terminal."""
        return self._console.height

    def pieces(self, line: Sequence[tuple[str, str]]) -> None:
        """Print one line of clean texts, each with its style, without wrapping."""
        if self.rich:
            from rich.text import Text

            self._console.print(Text.assemble(*line), soft_wrap=True)
        else:
            print("".join(text for text, _ in line).rstrip())

    def print_heading(self, text: str) -> None:
        """Print the heading of a section."""
        self.line()
        self.line(text, style="bold")

    def table(self, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print a table of clean cells."""
        if self.rich:
            self._rich_table(headers, rows)
            return
        widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
        for row in (headers, *rows):
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())

    def _rich_table(self, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print a table, wrapping only the widest column. If that does not fit, print each row as several lines."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
        widest = widths.index(max(widths))
        if sum(widths) - widths[widest] + min(widths[widest], WRAPPED_MIN) + 3 * len(widths) > self._console.width:
            self._cards(headers, rows)
            return
        table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
        for place, header in enumerate(headers):
            table.add_column(Text(header), overflow="fold", no_wrap=place != widest)
        for row in rows:
            table.add_row(*(Text(cell, style=STYLES.get(cell, "")) for cell in row))
        self._console.print(table)

    def _cards(self, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        width = max(map(len, headers))
        for first, *others in rows:
            self.pieces([(first, "bold")])
            for header, cell in zip(headers[1:], others, strict=True):
                if cell:
                    self.pieces([(f"  {header:<{width}}  ", "dim"), (cell, STYLES.get(cell, ""))])

    def tree(self, tree: Tree) -> None:
        """Print a tree to a terminal."""
        self._console.print(tree, soft_wrap=True)

    @contextmanager
    def progress(self, what: str) -> Iterator[Callable[[int, int], None]]:
        """Show a progress bar if stderr is a terminal. Yields a function of (done, total)."""
        if self.as_json or not is_terminal(sys.stderr):
            yield lambda done, total: None
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(what, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)

    @contextmanager
    def redraw_live(self) -> Iterator[Callable[[Sequence[Sequence[tuple[str, str]]]], None]]:
        """Redraw a part of a terminal. Yields a function that takes all of its lines."""
        from rich.console import Group
        from rich.live import Live
        from rich.text import Text

        with Live(console=self._console, auto_refresh=False, vertical_overflow="crop") as live:

            def draw(lines: Sequence[Sequence[tuple[str, str]]]) -> None:
                live.update(
                    Group(*(Text.assemble(*line, no_wrap=True, overflow="crop") for line in lines)), refresh=True
                )

            yield draw

    @property
    def _console(self) -> Console:
        from rich.console import Console

        return Console(highlight=False, markup=False, emoji=False)
