"""`perdure usage` and `perdure savings`: the cost of model calls, and what resuming has saved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import msgspec

from perdure.cli.output import CommandOutput, clean
from perdure.cli.store_option import (
    add_common_options,
    agent_option,
    find_agent,
    find_run,
    open_existing_store,
    run_option,
)
from perdure.run.usage import (
    SavedTotals,
    Totals,
    UsageLine,
    format_duration,
    group_totals,
    savings_lines,
    sum_savings,
    totals_of,
    usage_lines,
)
from perdure.store.base import Store

NO_MODEL, NO_STEP = "(no model)", "(outside of steps)"


@click.command()
@run_option
@agent_option
@click.option(
    "--by",
    type=click.Choice(["run", "agent", "day", "model", "step"]),
    default="model",
    show_default=True,
    help="One row for each of them.",
)
@add_common_options
def usage(run: str | None, agent: str | None, by: str, url: str | None, as_json: bool) -> int:
    """Show what model calls have cost.

    Calls, tokens and money as recorded by run.usage(). Days are in UTC. A call without a known price is counted with
    unknown cost.
    """
    out = CommandOutput(as_json)
    with open_existing_store(url) as store:
        whose = _agent_of(store, run, agent)
        lines = usage_lines(store, whose, run or "")
    whole, rows = totals_of(lines), group_totals(totals_of, _name_lines(lines, by), by)
    if as_json:
        out.json(_as_json(whole, rows, by))
    elif not lines:
        out.line("no usage recorded; programs record it with run.usage(model=..., input_tokens=..., output_tokens=...)")
    else:
        headers = (by.upper(), "CALLS", "TOKENS IN", "CACHED", "TOKENS OUT", "COST")
        out.table(headers, [_cells(name, one) for name, one in (*rows.items(), ("in all", whole))])
    return 0


@click.command()
@run_option
@agent_option
@click.option(
    "--by",
    type=click.Choice(["run", "agent", "day", "model"]),
    default="run",
    show_default=True,
    help="One row for each of them.",
)
@add_common_options
def savings(run: str | None, agent: str | None, by: str, url: str | None, as_json: bool) -> int:
    """Show what resuming has saved: steps that a restart from zero would have repeated.

    A step counts once for each resume that skipped it. Reading a finished run saves nothing.
    """
    out = CommandOutput(as_json)
    with open_existing_store(url) as store:
        whose = _agent_of(store, run, agent)
        lines = savings_lines(store, whose, run or "")
    whole, rows = sum_savings(lines), group_totals(sum_savings, _name_lines(lines, by), by)
    if as_json:
        out.json(_as_json(whole, rows, by))
    elif not lines:
        out.line("no savings: no resumed run has skipped a finished step")
    else:
        headers = (by.upper(), "STEPS", "TIME", "CALLS", "TOKENS IN", "CACHED", "TOKENS OUT", "COST")
        out.table(headers, [_make_savings_cells(name, one) for name, one in (*rows.items(), ("in all", whole))])
    return 0


def _agent_of(store: Store, run: str | None, agent: str | None) -> str:
    """Return the selected agent; an empty name selects all."""
    if run is not None:
        return find_run(store, run, agent).agent
    chosen = find_agent(store, agent) if agent is not None else None
    return chosen[0] if chosen is not None else ""


def _name_lines(lines: Sequence[UsageLine], by: str) -> list[UsageLine]:
    """Name lines without a model or step, and prefix runs with their agent if there are several agents."""
    several = len({line.agent for line in lines}) > 1
    return [_rename_line(line, by, several) for line in lines]


def _rename_line(line: UsageLine, by: str, several: bool) -> UsageLine:
    if by == "run" and several:
        return msgspec.structs.replace(line, run=f"{line.agent}/{line.run}")
    if by == "model" and not line.model:
        return msgspec.structs.replace(line, model=NO_MODEL)
    if by == "step" and not line.step:
        return msgspec.structs.replace(line, step=NO_STEP)
    return line


def _cells(name: str, totals: Totals) -> tuple[str, ...]:
    counts = (totals.calls, totals.input_tokens, totals.cached_input_tokens, totals.output_tokens)
    return clean(name), *(f"{count:,}" for count in counts), totals.money


def _make_savings_cells(name: str, totals: SavedTotals) -> tuple[str, ...]:
    shown, *rest = _cells(name, totals)
    return shown, f"{totals.steps:,}", format_duration(totals.seconds), *rest


def _as_json(whole: Totals, rows: dict[str, Any], by: str) -> dict[str, Any]:
    parts = [{by: name, **msgspec.structs.asdict(one)} for name, one in rows.items()]
    return {"total": msgspec.structs.asdict(whole), "by": by, "rows": parts}
