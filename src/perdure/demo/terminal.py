"""The demo in a terminal: one mark per tool call, drawn while the processes live and die."""

from __future__ import annotations

import time

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from .evidence import Report
from .screen import (
    ABOUT,
    COLUMNS,
    TITLE,
    Display,
    assumptions,
    comparison,
    conclusion,
    how_it_ended,
    what_it_found,
    what_it_waits_for,
    where,
    who,
)
from .stage import Stage
from .story import CALLS, Life

DEATH_SECONDS = 0.8
"""A pause after each death: otherwise nobody sees it."""


class TerminalDisplay(Display):
    """Colour, movement, and a table at the end."""

    def __init__(self, console: Console, pause: float = DEATH_SECONDS) -> None:
        self._console = console
        self._pause = pause
        self._lives: dict[int, Life] = {}
        self._live = Live(console=console, refresh_per_second=20, get_renderable=self._draw)
        plain = console.options.ascii_only
        self._done, self._open, self._dead = ("#", "-", "x") if plain else ("━", "─", "✗")
        self._good, self._bad = ("ok", "no") if plain else ("✓", "✗")

    def __exit__(self, *error: object) -> None:
        self._live.stop()

    def begin(self, stage: Stage, *, kept: bool) -> None:
        title = Text("perdure demo", style="bold")
        self._console.print(Rule(title, align="left", style="dim"))
        self._console.print(Text(f"{TITLE}\n{ABOUT}"))
        self._console.print(Text("\n".join([*where(stage, kept), ""]), style="dim"), soft_wrap=True)
        self._console.print(self._legend())
        self._live.start()

    def update(self, life: Life) -> None:
        self._lives[life.number] = life
        if life.exit_code is not None:
            self._live.refresh()
            if life.killed:
                time.sleep(self._pause)

    def end(self, report: Report, kept: Stage | None) -> None:
        self._live.stop()
        self._console.print(self._table(report))
        self._console.print(Text(f"\n{assumptions()}\n", style="dim"))
        self._console.print(self._claims(report))
        self._console.print(Text(f"\n{conclusion(report, kept)}", style="bold green" if report.ok else "bold red"))

    def _legend(self) -> Text:
        return Text.assemble(
            (self._done, "blue"), " from the journal   ", (self._done, "yellow"), " found done by its check   ",
            (self._done, "green"), " executed   ",
            (self._dead, "bold red"), " killed   ", (self._open, "dim"), " to do\n",
        )  # fmt: skip

    def _draw(self) -> RenderableType:
        return Group(*(self._draw_life(life) for life in self._lives.values()))

    def _draw_life(self, life: Life) -> RenderableType:
        name, _, pid = who(life).partition(" (")
        head = Text.assemble((name, "bold"), (f"  {pid.rstrip(')')}" if pid else "", "dim"))
        head.append(f"  {what_it_found(life)}", style="blue" if life.remembered else "dim")
        return Group(head, self._bar(life), self._now(life), Text())

    def _bar(self, life: Life) -> Text:
        """One mark per call. The call that a process died in is red, whether or not it had happened."""
        bar, drawn = Text("  "), 0
        executed = life.journal.done - life.before if life.killed else len(life.executed)
        for count, mark, style in (
            (life.remembered, self._done, "blue"),
            (life.adopted, self._done, "yellow"),
            (executed, self._done, "green"),
            (int(life.killed), self._dead, "bold red"),
        ):
            bar.append(mark * count, style=style)
            drawn += count
        bar.append(self._open * (CALLS - drawn), style="dim")
        return bar

    def _now(self, life: Life) -> Text:
        if life.exit_code is not None:
            return Text("  " + how_it_ended(life), style="bold red" if life.exit_code else "bold green")
        if waits := what_it_waits_for(life).strip():
            return Text("  " + waits, style="yellow")
        if not life.executed:
            return Text("  starts", style="dim")
        call = life.executed[-1]
        return Text.assemble("  ", (f"{life.position:2} ", "bold"), f"{call.tool} ", (call.task, "dim"))

    def _table(self, report: Report) -> Table:
        table = Table(box=None, padding=(0, 3, 0, 0), header_style="bold")
        for title in COLUMNS:
            table.add_column(title, justify="right" if title else "left")
        for index, (what, ours, restart) in enumerate(comparison(report)):
            repeated = index % 2 == 1
            table.add_row(
                Text(what, style="dim" if repeated else ""),
                Text(ours, style="green" if repeated else ""),
                Text(restart, style="red" if repeated else ""),
                end_section=repeated,
            )
        return table

    def _claims(self, report: Report) -> Table:
        claims = Table.grid(padding=(0, 1))
        for claim in report.claims:
            mark = Text(self._good, "green") if claim.holds else Text(self._bad, "bold red")
            claims.add_row(mark, Text(claim.claim))
        return claims
